// Links' use, drawn on the topology.
// Nodes stand side by side, each with its devices, what joins them and its ports; the fabric above. Where nodes
// are many, in rows.
function placed(network) {
  const nodes = [...new Set(network.vertices.filter((vertex) => vertex.node >= 0).map((vertex) => vertex.node))];
  const columns = Math.min(nodes.length, window.innerWidth < 700 ? 2 : 4), rows = Math.ceil(nodes.length / Math.max(1, columns));
  const spread = (list, from, width, y, result) => list.forEach((v, i) => { result[v] = [from + width * (i + 0.5) / list.length, y]; });
  const result = [], of = (test) => network.vertices.map((vertex, v) => v).filter((v) => test(network.vertices[v]));
  nodes.forEach((node, i) => {
    const x = (i % columns) * 100 + 6, y = 70 + Math.floor(i / columns) * 110;
    for (const [tier, at] of [[3, -4], [2, 12], [1, 36], [0, 62]]) spread(of((vertex) => vertex.node === node && vertex.tier === tier), x, 88, y + at, result);
  });
  const top = of((vertex) => vertex.node < 0 && vertex.tier === 3), spine = of((vertex) => vertex.node < 0 && vertex.tier === 4);
  spread(top, 0, 100 * columns, 30, result);
  spread(spine, 0, 100 * columns, 0, result);
  return { places: result, rows, height: 110 * rows + 70 };
}

// From idle to full: what stands out is what is busy.
function useColour(use) {
  const p = palette();
  if (use < 0.005) return p.line;
  const steps = themeName === 'dark' ? ['#5c7f63', '#b7b04f', '#f0a33a', '#ff6a5c'] : ['#7fb08a', '#c2b02a', '#e07b16', '#c8352b'];
  return steps[use < 0.25 ? 0 : use < 0.5 ? 1 : use < 0.75 ? 2 : 3];
}

function linksSection(plan) {
  const network = plan.network;
  if (!network || !network.kinds || network.kinds.length === 0) return [];
  const edges = network.edges;
  const edgeText = (edge) => `${network.vertices[edge.from].name} – ${network.vertices[edge.to].name} (${edge.kind}): ${percent(edge.utilization)} used, ${bytes(edge.bytes)}`;
  const text = (at) => (at.dataType === 'edge' ? edgeText(edges[at.dataIndex]) : network.vertices[at.dataIndex].name);
  const busiest = edges.map((edge, i) => i).sort((a, b) => edges[b].utilization - edges[a].utilization);
  const symbols = ['rect', 'diamond', 'triangle', 'roundRect', 'roundRect'];
  const shown = network.drawn < network.nodes ? ` The first ${network.drawn} of ${network.nodes} nodes are drawn.` : '';
  const made = chart({
    label: `Use of the links of ${network.drawn} nodes, drawn on their topology`,
    caption: `Share of a link's rate that a step uses, in its busier direction: grey is idle, green below 25%, then yellow, orange, and red from 75% on.${shown} Squares are devices, triangles ports. Arrows step through the links, busiest first.`,
    height: () => Math.min(900, Math.max(280, placed(network).height * (window.innerWidth < 700 ? 1.3 : 1.5))),
    walk: () => [edges.length],
    tell: (series, at, self) => {
      self.instance.dispatchAction({ type: 'downplay', seriesIndex: 0 });
      self.instance.dispatchAction({ type: 'highlight', seriesIndex: 0, dataType: 'edge', dataIndex: busiest[at] });
      return edgeText(edges[busiest[at]]);
    },
    option: () => {
      const { places } = placed(network), p = palette();
      return {
        tooltip: { trigger: 'item', formatter: (at) => escaped(text(at)) },
        series: [{
          type: 'graph', layout: 'none', left: 20, right: 20, top: 20, bottom: 24, roam: false, emphasis: { focus: 'none', lineStyle: { width: 7, opacity: 1 } },
          data: network.vertices.map((vertex, v) => ({
            x: places[v][0], y: places[v][1], symbol: symbols[vertex.tier], symbolSize: vertex.tier > 2 ? [42, 16] : vertex.tier === 1 ? 14 : 10,
            itemStyle: { color: vertex.tier === 0 ? p.accent : p.soft },
            label: {
              show: vertex.tier > 2 || vertex.tier === 1, position: vertex.tier === 1 ? 'bottom' : 'top', distance: 3, color: p.ink, fontSize: 11,
              formatter: vertex.tier === 1 && network.drawn > 1 ? `node ${vertex.node}` : vertex.name.replace(/^node\d+\./, ''),
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
  const rows = network.kinds.map((kind) => [kind.kind, count(kind.links), rate(kind.bandwidth_bytes_per_s), percent(kind.mean_utilization), percent(kind.most_utilization), bytes(kind.bytes)]);
  return [made.figure, tableOf(['links', 'number', 'each', 'mean use', 'most', 'bytes in all'], rows, { label: 'Links by kind' })];
}
