#!/usr/bin/env python3
"""`orrery serve`: answers what `plan` answers, to the browsers of this machine alone, whatever else is thrown at it."""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY, OrreryCase

SMALL = {"workload": "gpt2", "cluster": "dgx-a100", "gpus": 4, "global_batch": 8, "seq_len": 128, "tp": 2}
# A pipeline of 32 stages that 7 * 73 samples pass through one by one: seconds of work.
LONG = {"workload": "llama3-70b", "cluster": "dgx-h100", "gpus": 512, "global_batch": 511}


def children_of(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except (OSError, IndexError):
                pass
    return found


class ServeCase(OrreryCase):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([ORRERY, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL)
        self.addCleanup(self.stop)
        line = self.server.stdout.readline()
        self.assertRegex(line, r"^http://127\.0\.0\.1:\d+/ ")
        self.url = line.split()[0]
        self.port = urllib.parse.urlsplit(self.url).port

    def stop(self):
        self.server.send_signal(signal.SIGINT)
        try:
            self.assertEqual(self.server.wait(20), 0)
        finally:
            self.server.kill()
            self.server.wait()
            for stream in (self.server.stdout, self.server.stderr):
                stream.close()

    def get(self, target, method="GET", headers=None, body=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.putrequest(method, target, skip_host="Host" in (headers or {}))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.read(), dict(response.getheaders())
        finally:
            connection.close()

    def answer(self, question, timeout=60):
        status, text, _ = self.get("/answer?" + urllib.parse.urlencode(question), timeout=timeout)
        self.assertEqual(status, 200, text)
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual(lines[-1]["stage"], "done")
        return {line["stage"]: line for line in lines}

    def check_it_answers(self, within_s=5):
        begin = time.monotonic()
        self.assertEqual(self.get("/", timeout=within_s)[0], 200)
        self.assertLess(time.monotonic() - begin, within_s)

    def raw(self, data, timeout=15):
        """What comes back for bytes that need not be a request; the connection ends it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as client:
            try:
                client.sendall(data)
            except OSError:
                pass  # it has said no already
            answer = b""
            try:
                while piece := client.recv(65536):
                    answer += piece
            except ConnectionResetError:
                pass
            return answer


class Serve(ServeCase):
    def test_it_answers_what_plan_answers(self):
        begin = time.monotonic()
        answer = self.answer(SMALL)
        first_s = time.monotonic() - begin
        words = [word for key, value in SMALL.items() if key not in ("workload", "cluster") for word in (f"--{key.replace('_', '-')}", value)]
        planned = self.json("plan", SMALL["workload"], SMALL["cluster"], *words)
        best, told = planned["plans"][0], answer["searched"]["plan"]
        self.check_plan(best)
        for field in ("step_time_s", "memory_bytes", "tp", "zero", "micro_batch", "mfu"):
            self.assertEqual(told[field], best[field], field)
        self.assertEqual(told["why"], planned["why"])
        self.assertEqual(answer["drawn"]["plan"]["step_time_s"], best["step_time_s"])
        # Once more: from memory.
        again_s = []
        for _ in range(3):
            begin = time.monotonic()
            self.assertEqual(self.answer(SMALL), answer)
            again_s.append(time.monotonic() - begin)
        self.assertLess(min(again_s), first_s / 2)

    def test_it_tells_what_cannot_be_answered(self):
        self.assertIn("GiB", self.answer({"workload": "gpt3-175b", "cluster": "dgx-a100", "gpus": 1, "global_batch": 1})["no"]["text"])
        self.assertIn("did you mean", self.answer({"workload": "llama3-70", "cluster": "dgx-h100"})["bad"]["text"])
        self.assertIn("at most 800000", self.answer({**SMALL, "gpus": 1 << 20})["bad"]["text"])
        self.assertIn("at most 8192", self.answer({**SMALL, "gpus": 1 << 19})["bad"]["text"])

    def test_the_page_is_made_of_nothing_from_elsewhere(self):
        for path, kind in (("/", "text/html"), ("/live.js", "text/javascript"), ("/charts.js", "text/javascript"), ("/live.css", "text/css"),
                           ("/choices", "application/json")):
            status, body, headers = self.get(path)
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith(kind), headers)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertGreater(len(body), 100)
            self.assertEqual(self.get(path, method="HEAD")[1], b"")
        choices = json.loads(self.get("/choices")[1])
        self.assertNotIn("localhost", [cluster["name"] for cluster in choices["clusters"]])
        self.assertGreater(len(choices["workloads"]), 20)

    def test_only_this_machine_can_reach_it(self):
        listening = [line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
        mine = [place for place in listening if int(place.split(":")[1], 16) == self.port]
        self.assertEqual(mine, [f"0100007F:{self.port:04X}"])

    def test_other_names_and_other_sites_are_refused(self):
        target = "/answer?" + urllib.parse.urlencode(SMALL)
        for host in ("evil.example", f"evil.example:{self.port}", "127.0.0.1", f"127.0.0.1.evil.example:{self.port}", f"localhost:{self.port}.", ""):
            self.assertEqual(self.get(target, headers={"Host": host})[0], 421, host)
        self.assertIn(b"421", self.raw(b"GET / HTTP/1.1\r\n\r\n"))
        self.assertIn(b"421", self.raw(f"GET / HTTP/1.1\r\nHost: localhost:{self.port}\r\nHost: evil.example\r\n\r\n".encode()))
        for origin in ("http://evil.example", "null", f"https://localhost:{self.port}", f"http://localhost:{self.port}.evil.example"):
            self.assertEqual(self.get(target, headers={"Origin": origin})[0], 403, origin)
        for site in ("cross-site", "same-site"):
            self.assertEqual(self.get(target, headers={"Sec-Fetch-Site": site})[0], 403, site)
        self.assertEqual(self.get("/", headers={"Host": f"localhost:{self.port}"})[0], 200)
        self.assertEqual(self.get("/choices", headers={"Origin": self.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"})[0], 200)

    def test_no_path_and_no_name_reads_a_file(self):
        secret = self.folder / "secret.textproto"
        secret.write_text("name: \"TOPSECRET\"")
        for target in ("/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/secret.textproto", "/.", "/etc/passwd",
                       f"/{secret}", "/live.js/../secret.textproto", "/..;/secret", "/\\..\\secret", "/%00", "http://evil.example/"):
            status, body, _ = self.get(target)
            self.assertIn(status, (400, 404, 421), target)
            self.assertNotIn(b"root:", body)
            self.assertNotIn(b"TOPSECRET", body)
        for key in ("workload", "cluster", "runtime", "device"):
            for value in (str(secret), "secret.textproto", "../secret.textproto", "/etc/passwd", "file:///etc/passwd"):
                text = json.dumps(self.answer({**SMALL, key: value}))
                self.assertIn("is not in the catalog", text)
                self.assertNotIn("TOPSECRET", text)
        for key in ("from_peft", "from_deepspeed", "from_megatron", "lengths", "out", "json"):
            self.assertEqual(self.get("/answer?" + urllib.parse.urlencode({**SMALL, key: str(secret)}))[0], 400)

    def test_what_is_huge_or_no_request_is_refused(self):
        host = f"Host: 127.0.0.1:{self.port}\r\n".encode()
        for data, says in ((b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n", b" 431 "),
                           (b"GET / HTTP/1.1\r\n" + host + b"A: b\r\n" * 100_000 + b"\r\n", b" 431 "),
                           (b"GET /" + b"a" * 6000 + b" HTTP/1.1\r\n" + host + b"\r\n", b" 414 "),
                           (b"GET /" + b"a" * 1_000_000, b" 431 "),
                           (b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 100000000\r\n\r\n" + b"a" * 1_000_000, b" 405 "),
                           (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 10\r\n\r\n0123456789", b" 413 "),
                           (b"GET / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", b" 413 "),
                           (b"GET / HTTP/1.1\r\n" + host + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b" 400 "),
                           (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500), b" 400 "),
                           (os.urandom(200_000), b""), (b"\0" * 100_000, b" 400 ")):
            answer = self.raw(data)
            self.assertIn(says, answer.split(b"\r\n")[0] if says else answer, data[:60])
            self.check_it_answers()
        self.assertEqual(self.get("/answer?workload=%zz")[0], 400)
        self.assertEqual(self.get("/answer?workload=" + "a" * 3000)[0], 400)
        self.assertEqual(self.get("/answer?" + "&".join(f"k{i}=1" for i in range(400)))[0], 400)

    def test_slow_clients_wait_alone(self):
        slow = []
        try:
            for i in range(300):  # more than it holds: the oldest give way
                client = socket.create_connection(("127.0.0.1", self.port), 10)
                client.sendall(b"GET / HT" if i % 2 else b"")
                slow.append(client)
                if i % 50 == 0:
                    self.check_it_answers()
            begin = time.monotonic()
            dripping = slow[-1]
            dripping.settimeout(0.2)
            ended = False
            while not ended and time.monotonic() - begin < 15:  # a byte now and then buys no time
                try:
                    dripping.sendall(b"a")
                    ended = dripping.recv(100) == b""
                except socket.timeout:
                    pass
                except OSError:
                    ended = True
                self.check_it_answers()
            self.assertTrue(ended)
            self.assertLess(time.monotonic() - begin, 12)
        finally:
            for client in slow:
                client.close()
        self.answer(SMALL)

    def test_two_hundred_at_once_leave_it_answering(self):
        seen, lock = [], threading.Lock()

        def one(i):
            try:
                status, text, _ = self.get("/answer?" + urllib.parse.urlencode({**SMALL, "global_batch": 8 * (1 + i)}), timeout=120)
            except OSError as error:
                status, text = str(error), b""
            with lock:
                seen.append((status, text))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            self.check_it_answers()
        for thread in threads:
            thread.join()
        self.assertEqual(len(seen), 200)
        self.assertEqual({status for status, _ in seen} - {200, 503}, set())
        answered = [text for status, text in seen if status == 200]
        self.assertGreaterEqual(len(answered), 10)
        for text in answered:
            self.assertIn(b'"stage":"searched"', text)
        self.answer(SMALL)

    def test_an_answer_that_nobody_waits_for_is_given_up(self):
        for _ in range(3):
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            client.request("GET", "/answer?" + urllib.parse.urlencode(LONG))
            response = client.getresponse()
            response.readline()  # the first answer
            self.assertTrue(children_of(self.server.pid))
            response.close()
            client.close()
            until = time.monotonic() + 10
            while children_of(self.server.pid) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(children_of(self.server.pid), [])
        self.answer(SMALL)

    def test_a_fork_that_dies_takes_nothing_with_it(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        client.request("GET", "/answer?" + urllib.parse.urlencode(LONG))
        response = client.getresponse()
        response.readline()
        for child in children_of(self.server.pid):
            os.kill(child, signal.SIGSEGV)
        last = [json.loads(line) for line in response.read().splitlines()][-1]
        self.assertEqual(last["stage"], "failed")
        self.assertIn("signal", last["text"])
        client.close()
        self.answer(SMALL)

    def test_what_is_measured_while_it_runs_counts_in_the_next_answer(self):
        before = self.answer(SMALL)["searched"]["plan"]["step_time_s"]
        table = self.folder / "nccl.txt"
        table.write_text("# nThread 1 nGpus 4 minBytes 33554432 maxBytes 33554432 step: 2(factor)\n#\n"
                         + "".join(f"#  Rank  {i} Group  0 Pid  1 on host device  {i} [0x0{i}] NVIDIA A100-SXM4-80GB\n"
                                   for i in range(4))
                         + "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
                         + "    33554432       8388608     float     sum      -1    510.1   65.78   98.67      0    509.0   65.92   98.88      0\n")
        self.done("calibrate", "dgx-a100", "--from", table)
        self.assertNotEqual(self.answer(SMALL)["searched"]["plan"]["step_time_s"], before)

    def test_a_port_that_is_taken_is_said_in_one_line(self):
        self.refused("serve", "--port", str(self.port), says=f"--port {self.port}")
        self.refused("serve", "--port", "65536", says="--port 65536")


if __name__ == "__main__":
    unittest.main(verbosity=2)
