// Networks with readers of their own: parameters and FLOPs summed by hand from the dimensions.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "proto/workload.pb.h"
#include "tests/workloads/readers/huggingface_files.h"
#include "workloads/readers/catalog.h"
#include "workloads/readers/huggingface.h"

namespace orrery {
namespace {

using test::load;

using NetworkCount = std::int64_t;

// torchvision's weights of convnext_tiny have 28,589,128, timm's of convnextv2_tiny 28,635,496.
TEST_CASE("ConvNeXt: parameters and FLOPs by hand") {
  const std::array<NetworkCount, 4> width = {96, 192, 384, 768}, depth = {3, 3, 9, 3}, side = {56, 28, 14, 7};
  NetworkCount parameters = 48 * 96 + 96 + 2 * 96 + 2 * 768 + 768 * 1000 + 1000, second = parameters;
  double flops = 2.0 * 56 * 56 * 48 * 96 + 2.0 * 768 * 1000;
  for (int s = 0; s < 4; ++s) {
    const NetworkCount c = width[s];
    const NetworkCount layer = 49 * c + c + 2 * c + 4 * c * c + 4 * c + 4 * c * c + c;
    NetworkCount between = 0;
    if (s > 0) between = 2 * width[s - 1] + 4 * width[s - 1] * c + c;
    parameters += between + depth[s] * (layer + c);  // and a scale
    second += between + depth[s] * (layer + 8 * c);  // and the norm of 4c responses
    const auto pixels = static_cast<double>(side[s] * side[s]);
    if (s > 0) flops += 2 * pixels * 4 * static_cast<double>(width[s - 1] * c);
    flops += static_cast<double>(depth[s]) * 2 * pixels * static_cast<double>(49 * c + 8 * c * c);
  }
  CHECK(parameters == 28'589'128);
  CHECK(second == 28'635'496);
  const Workload tiny = load("convnext-tiny-224");
  CHECK(tiny.parameters() == parameters);
  CHECK(load("convnextv2-tiny-22k-224").parameters() == second);
  CHECK(tiny.forward_flops_per_sample(0) == flops);
  CHECK(tiny.ignored_keys.empty());
  CHECK(tiny.layers >= 18);  // a block for each layer
}

struct Sums {
  NetworkCount parameters = 0;
  double flops = 0;
};
// Of table 1 of arXiv 1905.11946: expansion, channels, layers, stride, kernel.
Sums efficientnet(double wide, double deep, NetworkCount side) {
  const int stages[7][5] = {{1, 16, 1, 1, 3},  {6, 24, 2, 2, 3},  {6, 40, 2, 2, 5}, {6, 80, 3, 2, 3},
                            {6, 112, 3, 1, 5}, {6, 192, 4, 2, 5}, {6, 320, 1, 1, 3}};
  const auto channels = [&](int n) {
    const double scaled = n * wide;
    NetworkCount eights = static_cast<NetworkCount>((scaled + 4) / 8) * 8;
    if (static_cast<double>(eights) < 0.9 * scaled) eights += 8;
    return eights;
  };
  Sums sums;
  const auto conv = [&](NetworkCount weights, NetworkCount out, NetworkCount rows) {  // and its norm
    sums.parameters += weights + 2 * out;
    sums.flops += 2.0 * static_cast<double>(weights * rows);
  };
  NetworkCount in = channels(32);
  side = (side + 1) / 2;
  conv(27 * in, in, side * side);
  for (const auto& [expansion, out_, layers, stride_, kernel] : stages) {
    const NetworkCount out = channels(out_);
    for (int i = 0; i < static_cast<int>(std::ceil(deep * layers)); ++i) {
      const NetworkCount wide_in = in * expansion, squeezed = in / 4;
      const int stride = i == 0 ? stride_ : 1;
      if (expansion > 1) conv(in * wide_in, wide_in, side * side);
      side = (side + stride - 1) / stride;
      conv(NetworkCount{kernel} * kernel * wide_in, wide_in, side * side);
      sums.parameters += 2 * wide_in * squeezed + squeezed + wide_in;
      sums.flops += 4.0 * static_cast<double>(wide_in * squeezed);
      conv(wide_in * out, out, side * side);
      in = out;
    }
  }
  const NetworkCount top = channels(1280);
  conv(in * top, top, side * side);
  sums.parameters += top * 1000 + 1000;
  sums.flops += 2.0 * static_cast<double>(top) * 1000;
  return sums;
}

// torchvision's weights of efficientnet_b0 and _b7; 0.39 and 37 billion multiply-adds in the paper's table 2.
TEST_CASE("EfficientNet: parameters and FLOPs by hand") {
  const Sums b0 = efficientnet(1, 1, 224), b7 = efficientnet(2, 3.1, 600);
  CHECK(b0.parameters == 5'288'548);
  CHECK(b7.parameters == 66'347'960);
  CHECK(load("efficientnet-b0").parameters() == b0.parameters);
  CHECK(load("efficientnet-b7").parameters() == b7.parameters);
  CHECK(load("efficientnet-b0").forward_flops_per_sample(0) == Approx(b0.flops).epsilon(1e-12));
  CHECK(load("efficientnet-b7").forward_flops_per_sample(0) == Approx(b7.flops).epsilon(1e-12));
  CHECK(b0.flops / 2 == Approx(0.39e9).epsilon(0.02));
  CHECK(b7.flops / 2 == Approx(37e9).epsilon(0.03));
  CHECK(load("efficientnet-b0").ignored_keys.empty());
}

// microsoft/deberta-v3-base without its heads 183,831,552; deberta-base 138,601,728; v2-xlarge 884,593,152.
TEST_CASE("DeBERTa: parameters and FLOPs by hand") {
  const auto layer = [](NetworkCount h, NetworkCount f) {
    return 4 * (h * h + h) + 2 * h * f + f + h + 4 * h;
  };
  const Workload v3 = load("deberta-v3-base");
  CHECK(v3.parameters() == 128100 * 768 + 2 * 768 + 512 * 768 + 2 * 768 + 12 * layer(768, 3072));
  CHECK(v3.parameters() == 183'831'552);
  CHECK(v3.ignored_keys.empty());
  // Biases of queries and values alone; two matrices for positions, one of them with a bias.
  CHECK(load("deberta-base").parameters() ==
        50265 * 768 + 2 * 768 + 1024 * 768 + 12 * (layer(768, 3072) - 768 + 2 * 768 * 768 + 768));
  CHECK(load("deberta-base").parameters() == 138'601'728);
  CHECK(load("deberta-v2-xlarge").parameters() == 128100 * 1536 + 2 * 1536 + 512 * 1536 + 2 * 1536 +
                                                      24 * layer(1536, 6144) + 3 * 1536 * 1536 + 3 * 1536);
  // Contents with contents (scores and context), with 512 distances, and these with keys.
  const double s = 512, h = 768;
  CHECK(v3.forward_flops_per_sample(0) == 12 * (2 * s * 12 * h * h + 4 * s * s * h + 2 * 2 * s * 512 * h));
  CHECK(load("deberta-base").forward_flops_per_sample(0) ==
        12 * (2 * s * 12 * h * h + 4 * s * s * h + 2 * 2 * s * 1024 * h));
}

constexpr NetworkCount time_and_class(NetworkCount h) {
  return 256 * h + h + h * h + h + 1001 * h;
}

// DiT-XL/2 has 675,129,632 (github.com/facebookresearch/DiT), of which 256 x 1152 are sines; diffusers gives
// each block its own embedding of time and class. 118.64 billion multiply-adds: arXiv 2212.09748, table 4.
TEST_CASE("DiT: parameters and FLOPs by hand") {
  const NetworkCount h = 1152;
  const NetworkCount block = 4 * (h * h + h) + 8 * h * h + 5 * h + 6 * (h * h + h);
  const NetworkCount ends = 16 * h + h + 2 * (h * h + h) + 32 * h + 32;
  CHECK(28 * block + ends + time_and_class(h) + 256 * h == 675'129'632);
  const Workload w = load("dit-xl-2-256");
  CHECK(w.parameters() == 28 * block + ends + 28 * time_and_class(h));
  const double s = 256, d = 1152;
  const double blocks = 28 * (2 * s * 12 * d * d + 4 * s * s * d + 2 * 6 * d * d);
  const double rest = 2 * s * 16 * d + 2 * s * 32 * d + 2 * 2 * d * d;
  CHECK(w.forward_flops_per_sample(0) == blocks + rest + 28 * 2 * (256 * d + d * d));
  CHECK((blocks + rest) / 2 == Approx(118.64e9).epsilon(0.001));
  CHECK(w.layers == 28);
  CHECK(w.ignored_keys.empty());
}

// Two 3 x 3 convolutions, the time, norms; another number of channels in: a third product.
NetworkCount pair(NetworkCount in, NetworkCount out) {
  return 2 * in + 9 * in * out + out + 1280 * out + out + 2 * out + 9 * out * out + out +
         (in != out ? in * out + out : 0);
}
// A norm and two products about `blocks` blocks: network_attention to itself, to the text, an MLP of three
// matrices.
NetworkCount network_attention(NetworkCount c, NetworkCount blocks, NetworkCount context) {
  return 2 * c + 2 * (c * c + c) +
         blocks * (3 * 2 * c + 4 * c * c + c + 2 * c * c + 2 * context * c + c + 8 * c * c + 8 * c +
                   4 * c * c + c);
}
NetworkCount around(NetworkCount c) {
  return 9 * c * c + c;
}

// 859,520,964 parameters: diffusers' UNet2DConditionModel of Stable Diffusion 1.5; XL has 2,567,463,684.
TEST_CASE("Stable Diffusion's U-Net: parameters by hand") {
  const NetworkCount time = 320 * 1280 + 1280 + 1280 * 1280 + 1280;
  const NetworkCount ends = 9 * 4 * 320 + 320 + 2 * 320 + 9 * 320 * 4 + 4;
  const auto at = [](NetworkCount c) { return network_attention(c, 1, 768); };
  const NetworkCount down = 2 * pair(320, 320) + 2 * at(320) + around(320) + pair(320, 640) + pair(640, 640) +
                            2 * at(640) + around(640) + pair(640, 1280) + pair(1280, 1280) + 2 * at(1280) +
                            around(1280) + 2 * pair(1280, 1280);
  const NetworkCount middle = 2 * pair(1280, 1280) + at(1280);
  const NetworkCount up = 3 * pair(2560, 1280) + around(1280) +                                             //
                          2 * pair(2560, 1280) + pair(1920, 1280) + 3 * at(1280) + around(1280) +           //
                          pair(1920, 640) + pair(1280, 640) + pair(960, 640) + 3 * at(640) + around(640) +  //
                          pair(960, 320) + 2 * pair(640, 320) + 3 * at(320);
  CHECK(time + ends + down + middle + up == 859'520'964);
  const Workload w = load("stable-diffusion-v1-5-unet");
  CHECK(w.parameters() == 859'520'964);
  CHECK(w.ignored_keys.empty());
  CHECK(w.layers == 1 + 8 + 1 + 12);  // what stands before, pairs down, the middle, pairs up
  CHECK(load("stable-diffusion-xl-base-1.0-unet").parameters() == 2'567'463'684);
}

double conv_flops(double side, double in, double out) {
  return 2 * side * side * 9 * in * out;
}
double pair_flops(double side, double in, double out) {
  return conv_flops(side, in, out) + conv_flops(side, out, out) + 2 * 1280 * out +
         (in != out ? 2 * side * side * in * out : 0);
}
double attention_flops(double side, double c) {
  const double n = side * side;
  return 2 * n * 2 * c * c + 2 * n * 4 * c * c + 4 * n * n * c + 2 * n * 2 * c * c + 2 * 77 * 2 * 768 * c +
         4 * n * 77 * c + 2 * n * 12 * c * c;
}

TEST_CASE("Stable Diffusion's U-Net: FLOPs by hand, over latents of 64 x 64 and 77 tokens") {
  const double down = 2 * pair_flops(64, 320, 320) + 2 * attention_flops(64, 320) + conv_flops(32, 320, 320) +
                      pair_flops(32, 320, 640) + pair_flops(32, 640, 640) + 2 * attention_flops(32, 640) +
                      conv_flops(16, 640, 640) + pair_flops(16, 640, 1280) + pair_flops(16, 1280, 1280) +
                      2 * attention_flops(16, 1280) + conv_flops(8, 1280, 1280) +
                      2 * pair_flops(8, 1280, 1280);
  const double middle = 2 * pair_flops(8, 1280, 1280) + attention_flops(8, 1280);
  const double up = 3 * pair_flops(8, 2560, 1280) + conv_flops(16, 1280, 1280) +   //
                    2 * pair_flops(16, 2560, 1280) + pair_flops(16, 1920, 1280) +  //
                    3 * attention_flops(16, 1280) + conv_flops(32, 1280, 1280) +   //
                    pair_flops(32, 1920, 640) + pair_flops(32, 1280, 640) + pair_flops(32, 960, 640) +
                    3 * attention_flops(32, 640) + conv_flops(64, 640, 640) +  //
                    pair_flops(64, 960, 320) + 2 * pair_flops(64, 640, 320) + 3 * attention_flops(64, 320);
  const double ends = 2 * (320.0 * 1280 + 1280.0 * 1280) + conv_flops(64, 4, 320) + conv_flops(64, 320, 4);
  CHECK(load("stable-diffusion-v1-5-unet").forward_flops_per_sample(0) ==
        Approx(down + middle + up + ends).epsilon(1e-12));
}

TEST_CASE("networks: written as a textproto they are read as they were") {
  for (const char* name : {"convnext-tiny-224", "efficientnet-b0", "deberta-v3-base", "dit-xl-2-256",
                           "stable-diffusion-v1-5-unet"}) {
    const Workload w = load(name);
    proto::Workload message;
    to_proto(w, &message);
    const Workload again = workload_from_proto(message, "again", "");
    INFO(name);
    CHECK(again.parameters() == w.parameters());
    CHECK(again.forward_flops_per_sample(0) == Approx(w.forward_flops_per_sample(0)).epsilon(1e-12));
    CHECK(again.layers == w.layers);
  }
}

TEST_CASE("networks: errors name the file, the line and the key") {
  const auto refused = [](const std::string& name, const std::string& from, const std::string& to,
                          const std::string& what) {
    std::string text = read_file(std::string(ORRERY_TEST_DATA) + "/huggingface/" + name + ".json");
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    CHECK_THROWS_WITH(workload_from_huggingface(text, "config.json"),
                      Catch::StartsWith("config.json:") && Catch::Contains(what));
    CHECK_THROWS_AS(workload_from_huggingface(text, "config.json"), UserError);
  };
  refused("convnext-tiny-224", "\"image_size\": 224", "\"image_size\": 16", "image_size: 16");
  refused("convnext-tiny-224", "\"hidden_sizes\": [\n  96,\n  192,\n  384,\n  768\n ]", "\"hidden_sizes\": 2",
          "hidden_sizes: is no such list");
  refused("convnext-tiny-224", "\"num_stages\": 4", "\"num_stages\": 5", "num_stages: 5");
  refused("efficientnet-b0", "\"hidden_dim\": 1280", "\"hidden_dim\": 1281", "hidden_dim: 1281");
  refused("efficientnet-b0", "\"depthwise_padding\": []", "\"depthwise_padding\": [16]",
          "depthwise_padding: [16] (expected the blocks that halve an odd side, [])");
  refused("efficientnet-b7", "  18\n", "",
          "depthwise_padding: [] (expected the blocks that halve an odd side, [18])");
  refused("deberta-v3-base", "\"num_attention_heads\": 12", "\"num_attention_heads\": 13",
          "num_attention_heads: 13 does not divide");
  refused("deberta-v3-base", "p2c|c2p", "c2p", "pos_att_type: c2p");
  refused("dit-xl-2-256", "\"patch_size\": 2", "\"patch_size\": 3", "patch_size: 3");
  refused("dit-xl-2-256", "ada_norm_zero", "ada_norm", "norm_type");
  refused("stable-diffusion-v1-5-unet", "\"sample_size\": 64", "\"sample_size\": 60", "sample_size: 60");
  refused("stable-diffusion-v1-5-unet", "\"UpBlock2D\"", "\"AttnUpBlock2D\"",
          "up_block_types: AttnUpBlock2D");
}

}  // namespace
}  // namespace orrery
