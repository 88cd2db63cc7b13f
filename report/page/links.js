// Links' use, drawn on the topology.
// Nodes stand side by side, each with its devices, what joins them and its ports; the fabric above all of them, so
// that no node's links pass through another. Where the page is narrow the drawing lies on its side. Coordinates are
// pixels of a box: a graph keeps its proportions.
const linksOnSide = () => window.innerWidth < 700;
const linksHeight = (network) => (linksOnSide() ? 120 * network.drawn + 60 : 320);

// What devices of a node share stands below them, what leads to the ports above.
const joins = (vertex) => vertex.tier === 1 && /nvswitch|memory/.test(vertex.name);

function placed(network, width, height) {
  const nodes = [...new Set(network.vertices.filter((vertex) => vertex.node >= 0).map((vertex) => vertex.node))];
  const onSide = linksOnSide();
  const alongUnit = (onSide ? height : width) / (100 * Math.max(1, nodes.length)), depthUnit = (onSide ? width : height) / 140;
  const result = [], of = (test) => network.vertices.map((vertex, v) => v).filter((v) => test(network.vertices[v]));
  const spread = (list, from, span, depth) => list.forEach((v, i) => {
    const along = (from + span * (i + 0.5) / list.length) * alongUnit;
    result[v] = onSide ? [depth * depthUnit, along] : [along, depth * depthUnit];
  });
  nodes.forEach((node, i) => {
    const put = (test, depth) => spread(of((vertex) => vertex.node === node && test(vertex)), i * 100 + 6, 88, depth);
    put((vertex) => vertex.tier === 3, 58);
    put((vertex) => vertex.tier === 2, 72);
    put((vertex) => vertex.tier === 1 && !joins(vertex), 90);
    put((vertex) => vertex.tier === 0, 110);
    put(joins, 130);
  });
  spread(of((vertex) => vertex.node < 0 && vertex.tier === 3), 0, 100 * nodes.length, 26);
  spread(of((vertex) => vertex.node < 0 && vertex.tier === 4), 0, 100 * nodes.length, 0);
  return result;
}

// Without the switches that no node which is drawn hangs on.
function drawnNetwork(network) {
  const near = new Set();
  for (const edge of network.edges) {
    if (network.vertices[edge.from].node >= 0) near.add(edge.to);
    if (network.vertices[edge.to].node >= 0) near.add(edge.from);
  }
  const kept = network.vertices.map((vertex, v) => vertex.node >= 0 || vertex.tier !== 3 || near.has(v));
  const index = [];
  let next = 0;
  kept.forEach((keep, v) => { index[v] = keep ? next++ : -1; });
  return {
    ...network, vertices: network.vertices.filter((vertex, v) => kept[v]),
    edges: network.edges.filter((edge) => kept[edge.from] && kept[edge.to]).map((edge) => ({ ...edge, from: index[edge.from], to: index[edge.to] })),
  };
}

// What a vertex is called in the drawing: switches, and each node once.
function linkLabels(network) {
  const switches = network.vertices.filter((vertex) => vertex.node < 0 && vertex.tier === 3).length, said = new Set();
  const nodeSayers = [joins, (vertex) => vertex.tier === 1, (vertex) => vertex.tier === 0];
  const result = network.vertices.map((vertex) => {
    if (vertex.node >= 0) return vertex.tier === 3 ? vertex.name.replace(/^node\d+\./, '') : '';
    if (vertex.tier === 4) return vertex.name;
    return switches > 10 ? vertex.name.replace(/^.*?(\d+)$/, '$1') : vertex.name.replace(/^pod0\./, '');
  });
  for (const sayer of nodeSayers)
    network.vertices.forEach((vertex, v) => {
      if (vertex.node < 0 || said.has(vertex.node) || !sayer(vertex)) return;
      said.add(vertex.node);
      result[v] = network.drawn > 1 ? `node ${vertex.node}` : vertex.name.replace(/^node\d+\./, '');
    });
  return result;
}

// From idle to full: what stands out is what is busy.
function useColour(use) {
  const p = palette();
  if (use < 0.005) return p.line;
  const steps = themeName === 'dark' ? ['#5c7f63', '#b7b04f', '#f0a33a', '#ff6a5c'] : ['#7fb08a', '#c2b02a', '#e07b16', '#c8352b'];
  return steps[use < 0.25 ? 0 : use < 0.5 ? 1 : use < 0.75 ? 2 : 3];
}

function linksSection(plan) {
  if (!plan.network || !plan.network.kinds || plan.network.kinds.length === 0) return [];
  const network = drawnNetwork(plan.network), labels = linkLabels(network);
  const edges = network.edges;
  const edgeText = (edge) => `${network.vertices[edge.from].name} – ${network.vertices[edge.to].name} (${edge.kind}): ${percent(edge.utilization)} used, ${bytes(edge.bytes)}`;
  const text = (at) => (at.dataType === 'edge' ? edgeText(edges[at.dataIndex]) : network.vertices[at.dataIndex].name);
  const busiest = edges.map((edge, i) => i).sort((a, b) => edges[b].utilization - edges[a].utilization);
  const symbols = ['rect', 'diamond', 'triangle', 'roundRect', 'roundRect'];
  const shown = network.drawn < network.nodes ? ` The first ${exact(network.drawn)} of ${exact(network.nodes)} nodes are drawn.` : '';
  let made = null;
  made = chart({
    label: `Use of the links of ${network.drawn} nodes, drawn on their topology`,
    caption: `Share of a link's rate that a step uses, in its busier direction: grey is idle, green below 25%, then yellow, orange, and red from 75% on.${shown} Squares are devices, triangles ports. Arrows step through the links, busiest first.`,
    height: () => linksHeight(network),
    walk: () => [edges.length],
    tell: (series, at, self) => {
      self.instance.dispatchAction({ type: 'downplay', seriesIndex: 0 });
      self.instance.dispatchAction({ type: 'highlight', seriesIndex: 0, dataType: 'edge', dataIndex: busiest[at] });
      return edgeText(edges[busiest[at]]);
    },
    option: () => {
      const onSide = linksOnSide(), p = palette();
      const places = placed(network, made.box.clientWidth - 40, made.box.clientHeight - 54);
      return {
        tooltip: { trigger: 'item', formatter: (at) => escaped(text(at)) },
        series: [{
          type: 'graph', layout: 'none', left: 20, right: 20, top: 30, bottom: 24, roam: false, emphasis: { focus: 'none', lineStyle: { width: 7, opacity: 1 } },
          data: network.vertices.map((vertex, v) => ({
            x: places[v][0], y: places[v][1], symbol: symbols[vertex.tier], symbolSize: vertex.tier > 2 ? (onSide ? [16, 30] : [42, 16]) : vertex.tier === 1 ? 14 : 10,
            itemStyle: { color: vertex.tier === 0 ? p.accent : p.soft },
            label: {
              show: labels[v] !== '', position: onSide || vertex.tier > 2 ? 'top' : 'bottom', distance: 3, color: p.ink, fontSize: letters(11),
              formatter: labels[v],
            },
          })),
          edges: edges.map((edge) => ({
            source: edge.from, target: edge.to,
            lineStyle: { color: useColour(edge.utilization), width: 1.2 + 4.5 * Math.min(1, edge.utilization), opacity: 0.95, curveness: 0 },
          })),
        }],
      };
    },
  });
  const rows = network.kinds.map((kind) => [kind.kind, exact(kind.links), rate(kind.bandwidth_bytes_per_s), percent(kind.mean_utilization), percent(kind.most_utilization), bytes(kind.bytes)]);
  return [made.figure, tableOf(['links', 'number', 'each', 'mean use', 'most', 'bytes in all'], rows, { label: 'Links by kind' })];
}
