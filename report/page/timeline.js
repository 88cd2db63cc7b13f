// A step over time: what each rank spends it on, and what one rank's streams run.
function unpackStretches(row, timeline) {
  const tick = timeline.length_s / timeline.ticks, list = [];
  let at = 0;
  for (let i = 0; i < row.stretches.length; i += 3) {
    const begin = at + row.stretches[i], end = begin + row.stretches[i + 1];
    list.push({ begin: begin * tick, end: end * tick, part: row.stretches[i + 2] });
    at = end;
  }
  return list;
}

function unpackSpans(lane, timeline) {
  const tick = timeline.length_s / timeline.ticks, list = [];
  let at = 0;
  for (let i = 0; i < lane.spans.length; i += 6) {
    at += lane.spans[i];
    const label = timeline.labels[lane.spans[i + 3]].replace('mb#', `mb${lane.spans[i + 5]}`);
    list.push({ begin: at * tick, end: (at + lane.spans[i + 1]) * tick, kind: lane.spans[i + 2], label, instructions: lane.spans[i + 4] });
  }
  return list;
}

const rankName = (row) => `rank ${row.rank}${row.like > 1 ? ` and ${row.like - 1} like it` : ''} (stage ${row.stage}, dp ${row.dp}, tp ${row.tp})${row.critical ? ', with most compute' : ''}`;

// Bars over time in rows: data [row, begin, end].
function bars(name, colour, data, share) {
  return {
    name, type: 'custom', clip: true, data, itemStyle: { color: colour }, encode: { x: [1, 2], y: 0 }, progressive: 0,
    renderItem(params, api) {
      const from = api.coord([api.value(1), api.value(0)]), to = api.coord([api.value(2), api.value(0)]);
      const high = Math.max(2, api.size([0, 1])[1] * share), area = params.coordSys;
      const x = Math.max(from[0], area.x), width = Math.min(to[0], area.x + area.width) - x;
      if (width <= 0) return null;
      return { type: 'rect', shape: { x, y: from[1] - high / 2, width, height: high }, style: { fill: colour } };
    },
  };
}

function overTime(timeline, rows, series, height, text) {
  const narrow = window.innerWidth < 700;
  return {
    grid: { left: narrow ? 62 : 110, right: 16, top: 44, bottom: 76 }, legend: {},
    tooltip: { trigger: 'item', formatter: (at) => escaped(text(at.seriesIndex, at.dataIndex)), extraCssText: 'max-width:24rem;white-space:normal' },
    xAxis: timeAxis(timeline.length_s),
    yAxis: axis({ type: 'category', inverse: true, data: rows, axisLabel: { width: narrow ? 56 : 100, overflow: 'truncate' } }),
    dataZoom: [
      { type: 'inside', filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false },
      { type: 'slider', filterMode: 'none', bottom: 12, height: 22, textStyle: { color: palette().soft }, labelFormatter: (value) => seconds(value) },
    ],
    series,
  };
}

function ranksChart(plan, timeline) {
  const rows = timeline.rows.map((row) => unpackStretches(row, timeline));
  const used = timeline.parts.map((name, part) => part).filter((part) => rows.some((row) => row.some((one) => one.part === part)));
  // By series, the stretches that it draws; by row, where each stretch is drawn.
  const drawn = used.map(() => []), places = rows.map(() => []);
  rows.forEach((row, at) => row.forEach((stretch) => {
    const series = used.indexOf(stretch.part);
    places[at].push([series, drawn[series].length]);
    drawn[series].push({ ...stretch, row: at });
  }));
  const text = (series, at) => {
    const one = drawn[series][at];
    return `${rankName(timeline.rows[one.row])}: ${partName(timeline.parts[one.part])}, ${seconds(one.end - one.begin)} from ${seconds(one.begin)} on`;
  };
  let self = null;
  const folded = timeline.simulated_ranks < timeline.ranks ? ` One rank of each class of like ranks is simulated: ${timeline.simulated_ranks} of ${timeline.ranks}.` : '';
  const less = timeline.rows.length < timeline.simulated_ranks ? ` Shown are ${timeline.rows.length}.` : '';
  const coarse = timeline.resolution_s > 0 ? ` Stretches below ${seconds(timeline.resolution_s)} are joined, each kind keeping its time.` : '';
  self = chart({
    label: `What ${timeline.rows.length} ranks spend a step on, over time`,
    caption: `Each rank's step: computation, the communication that it waits for, and bubbles.${folded}${less}${coarse} Zoom with the buttons, the slider, Ctrl and the wheel, or + and −; arrows step through it.`,
    height: () => 130 + Math.max(18, Math.min(34, 900 / rows.length)) * rows.length,
    zoom: true, controls: el('div', { class: 'controls' }, zoomControls(() => self)),
    walk: () => places.map((row) => row.length),
    tell: (row, at, made) => {
      const [series, index] = places[row][at];
      showPoint(made, series, index);
      return text(series, index);
    },
    option: () => overTime(timeline, timeline.rows.map((row) => `rank ${row.rank}`),
      used.map((part, series) => bars(partName(timeline.parts[part]), partColour(timeline.parts[part]),
        drawn[series].map((one) => [one.row, one.begin, one.end]), 0.8)), 0, text),
    table: [['rank', ...used.map((part) => partName(timeline.parts[part]))], rows.map((row, at) => [rankName(timeline.rows[at]),
      ...used.map((part) => seconds(row.reduce((sum, one) => sum + (one.part === part ? one.end - one.begin : 0), 0)))])],
  });
  return self;
}

function streamsChart(timeline) {
  const shown = timeline.rows.map((row, at) => at).filter((at) => timeline.rows[at].lanes.length > 0);
  if (shown.length === 0) return null;
  const first = shown.find((at) => timeline.rows[at].critical) ?? shown[0];
  let lanes = [], kinds = [], drawn = [], places = [], row = null, self = null;
  const choose = (at) => {
    row = timeline.rows[at];
    lanes = row.lanes.map((lane) => ({ stream: lane.stream, spans: unpackSpans(lane, timeline) }));
    kinds = timeline.kinds.map((name, kind) => kind).filter((kind) => lanes.some((lane) => lane.spans.some((span) => span.kind === kind)));
    drawn = kinds.map(() => []);
    places = lanes.map((lane, at2) => lane.spans.map((span) => {
      const series = kinds.indexOf(span.kind);
      drawn[series].push({ ...span, lane: at2 });
      return [series, drawn[series].length - 1];
    }));
  };
  choose(first);
  const text = (series, at) => {
    const one = drawn[series][at];
    return `${lanes[one.lane].stream.replace(/_/g, ' ')}: ${one.label}${one.instructions > 1 ? `, ${one.instructions} instructions` : ''}, ${seconds(one.end - one.begin)} from ${seconds(one.begin)} on`;
  };
  const id = newId('rank');
  const select = el('select', { id, onchange: (event) => { choose(Number(event.target.value)); self.at = [0, -1]; self.draw(); } },
    shown.map((at) => el('option', { value: at, selected: at === first }, rankName(timeline.rows[at]))));
  const coarse = timeline.span_resolution_s > 0 ? ` What is shorter than ${seconds(timeline.span_resolution_s)} is joined with its neighbours, under the name of what takes most.` : '';
  const fewer = shown.length < timeline.rows.length ? ` Those of ${shown.length} of the ${timeline.rows.length} ranks are told.` : '';
  self = chart({
    label: 'What the streams of one rank run, over time',
    caption: `One rank's streams: what runs beside computation is hidden, what computation waits for is exposed.${coarse}${fewer}`,
    height: () => 140 + 36 * lanes.length, zoom: true,
    controls: el('div', { class: 'controls' }, el('label', { for: id }, 'Streams of'), select, zoomControls(() => self)),
    walk: () => places.map((lane) => lane.length),
    tell: (lane, at, made) => {
      const [series, index] = places[lane][at];
      showPoint(made, series, index);
      return text(series, index);
    },
    option: () => overTime(timeline, lanes.map((lane) => lane.stream.replace(/_/g, ' ')),
      kinds.map((kind, series) => bars(partName(timeline.kinds[kind]), partColour(timeline.kinds[kind]),
        drawn[series].map((one) => [one.lane, one.begin, one.end]), 0.75)), 0, text),
  });
  return self;
}

function timelineSection(plan) {
  const timeline = plan.timeline;
  if (!timeline || !timeline.rows) return [el('p', {}, 'Nothing was simulated.')];
  const streams = streamsChart(timeline);
  return [ranksChart(plan, timeline).figure, streams && streams.figure];
}
