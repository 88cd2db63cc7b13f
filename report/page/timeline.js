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
    list.push({ begin: at * tick, end: (at + lane.spans[i + 1]) * tick, part: lane.spans[i + 2], label, instructions: lane.spans[i + 4] });
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
      // On whole pixels: a bar that covers a part of one mixes with what is under it into a colour that no legend has.
      const x = Math.round(Math.max(from[0], area.x)), wide = Math.min(to[0], area.x + area.width);
      if (wide <= area.x || x >= area.x + area.width || to[0] - from[0] < 0.3) return null;
      return { type: 'rect', shape: { x, y: from[1] - high / 2, width: Math.max(1, Math.round(wide) - x), height: high }, style: { fill: colour } };
    },
  };
}

function overTime(timeline, rows, series, text) {
  const narrow = window.innerWidth < 700;
  return {
    grid: { left: letters(narrow ? 74 : 110), right: 16, top: 8, bottom: 76 }, legend: {},
    tooltip: { trigger: 'item', formatter: (at) => escaped(text(at.seriesIndex, at.dataIndex)), extraCssText: 'max-width:24rem;white-space:normal' },
    xAxis: timeAxis(timeline.length_s),
    yAxis: axis({ type: 'category', inverse: true, data: rows, axisLabel: { width: letters(narrow ? 68 : 104), overflow: 'break', lineHeight: letters(12), fontSize: letters(narrow ? 10 : 11), ...(rows.length <= 12 ? { interval: 0, hideOverlap: false } : {}) } }),
    dataZoom: [
      { type: 'inside', filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false },
      { type: 'slider', filterMode: 'none', bottom: 12, height: 22, textStyle: { color: palette().soft }, labelFormatter: (value) => seconds(value) },
    ],
    series,
  };
}

// Neighbours shorter than `finest` are taken together until they are as long; each kind then stands once, as long as it was in
// all of them: what takes a tenth of the time is seen as a tenth of the width, however short each piece.
const kStripe_px = 10;

function joinedPieces(row, finest) {
  const result = [];
  for (let i = 0; i < row.length;) {
    const first = row[i];
    if (first.end - first.begin >= finest) {
      result.push(first);
      i += 1;
      continue;
    }
    const until = first.begin + finest, took = new Map();
    let last = i;
    for (; last < row.length && row[last].end <= until; last += 1) took.set(row[last].part, (took.get(row[last].part) || 0) + row[last].end - row[last].begin);
    if (last - i < 3) {
      result.push(...row.slice(i, last));
    } else {
      let at = first.begin;
      for (const [part, time] of [...took].sort((a, b) => a[0] - b[0])) {
        result.push({ begin: at, end: at + time, part, of: [first.begin, row[last - 1].end] });
        at += time;
      }
    }
    i = last;
  }
  return result;
}

// Rows of pieces as bars, as fine as the width of the chart and its zoom let an eye see. rows(): pieces { begin, end, part }, in order
// and not overlapping; kinds: parts in the order of series.
function stripes(timeline, rows, kinds) {
  let finest = -1, waiting = 0;
  const made = { drawn: [], places: [] }; // by series, what it draws; by row, where each piece is drawn
  const wanted = (chart) => {
    const now = chart.instance.getOption()?.dataZoom?.[0], share = now ? (now.end - now.start) / 100 : 1;
    return timeline.length_s * share * kStripe_px / Math.max(200, chart.box.clientWidth - 120);
  };
  made.data = (series) => made.drawn[series].map((one) => [one.row, one.begin, one.end]);
  made.fill = (chart) => {
    finest = wanted(chart);
    made.drawn = kinds().map(() => []);
    made.places = rows().map(() => []);
    rows().forEach((row, at) => joinedPieces(row, finest).forEach((piece) => {
      const series = kinds().indexOf(piece.part);
      if (series < 0) return;
      made.places[at].push([series, made.drawn[series].length]);
      made.drawn[series].push({ ...piece, row: at });
    }));
  };
  made.zoomed = (chart) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (chart.instance.isDisposed() || (wanted(chart) < finest * 1.3 && wanted(chart) > finest / 1.3)) return;
      made.fill(chart);
      chart.instance.setOption({ series: kinds().map((part, series) => ({ data: made.data(series) })) });
    }, 40);
  };
  made.time = (one) => `${seconds(one.end - one.begin)}${one.of ? ` of the ${seconds(one.of[1] - one.of[0])}` : ''} from ${seconds(one.of ? one.of[0] : one.begin)} on`;
  return made;
}

// What lies between the pieces of a row is a piece, too: of no kind.
function withGaps(row) {
  const result = [];
  let end = 0;
  for (const piece of row) {
    if (piece.begin > end) result.push({ begin: end, end: piece.begin, part: -1 });
    const begin = Math.max(piece.begin, end);
    if (piece.end > begin) result.push({ ...piece, begin });
    end = Math.max(end, piece.end);
  }
  return result;
}

function ranksChart(plan, timeline) {
  const rows = timeline.rows.map((row) => unpackStretches(row, timeline));
  const used = timeline.parts.map((name, part) => part).filter((part) => rows.some((row) => row.some((one) => one.part === part)));
  let self = null;
  const striped = stripes(timeline, () => rows, () => used);
  const text = (series, at) => {
    const one = striped.drawn[series][at];
    return `${rankName(timeline.rows[one.row])}: ${partName(timeline.parts[one.part])}, ${striped.time(one)}`;
  };
  const folded = timeline.simulated_ranks < timeline.ranks ? ` One rank of each class of symmetric ranks is simulated: ${exact(timeline.simulated_ranks)} of ${exact(timeline.ranks)}.` : '';
  const less = timeline.rows.length < timeline.simulated_ranks ? ` Shown are ${timeline.rows.length}.` : '';
  const coarse = timeline.resolution_s > 0 ? `, down to ${seconds(timeline.resolution_s)}` : '';
  self = chart({
    label: `What ${timeline.rows.length} ranks spend a step on, over time`,
    caption: `Each rank's step: computation, the communication that it waits for, and bubbles.${folded}${less} What is too thin to see is joined, each kind keeping its time: zooming in tells it apart${coarse}. Zoom with the buttons, the slider, Ctrl and the wheel, or + and −; arrows step through it.`,
    height: () => 94 + Math.max(18, Math.min(34, 900 / rows.length)) * rows.length,
    zoom: true, controls: el('div', { class: 'controls' }, zoomControls(() => self)),
    zoomed: striped.zoomed,
    walk: () => striped.places.map((row) => row.length),
    tell: (row, at, made) => {
      const [series, index] = striped.places[row][at];
      showPoint(made, series, index);
      return text(series, index);
    },
    option: () => {
      striped.fill(self);
      return overTime(timeline, timeline.rows.map((row) => `rank ${row.rank}`),
        used.map((part, series) => bars(partName(timeline.parts[part]), partColour(timeline.parts[part]), striped.data(series), 0.8)), text);
    },
    table: [['rank', ...used.map((part) => partName(timeline.parts[part]))], rows.map((row, at) => [rankName(timeline.rows[at]),
      ...used.map((part) => seconds(row.reduce((sum, one) => sum + (one.part === part ? one.end - one.begin : 0), 0)))])],
  });
  return self;
}

function streamsChart(timeline) {
  const shown = timeline.rows.map((row, at) => at).filter((at) => timeline.rows[at].lanes.length > 0);
  if (shown.length === 0) return null;
  const first = shown.find((at) => timeline.rows[at].critical) ?? shown[0];
  let lanes = [], kinds = [], self = null;
  const choose = (at) => {
    lanes = timeline.rows[at].lanes.map((lane) => ({ stream: lane.stream, pieces: withGaps(unpackSpans(lane, timeline)) }));
    kinds = timeline.kinds.map((name, kind) => kind).filter((kind) => lanes.some((lane) => lane.pieces.some((piece) => piece.part === kind)));
  };
  choose(first);
  const striped = stripes(timeline, () => lanes.map((lane) => lane.pieces), () => kinds);
  const text = (series, at) => {
    const one = striped.drawn[series][at];
    const what = one.of ? partName(timeline.kinds[one.part]) : `${one.label}${one.instructions > 1 ? `, ${one.instructions} instructions` : ''}`;
    return `${lanes[one.row].stream.replace(/_/g, ' ')}: ${what}, ${striped.time(one)}`;
  };
  const id = newId('rank');
  const select = el('select', { id, onchange: (event) => { choose(Number(event.target.value)); self.at = [0, -1]; self.draw(); } },
    shown.map((at) => el('option', { value: at, selected: at === first }, rankName(timeline.rows[at]))));
  const coarse = timeline.span_resolution_s > 0 ? ` What is shorter than ${seconds(timeline.span_resolution_s)} is joined with its neighbours, under the name of what takes most.` : ' What is too thin to see is joined: zoom in.';
  const fewer = shown.length < timeline.rows.length ? ` Those of ${shown.length} of the ${timeline.rows.length} ranks are told.` : '';
  self = chart({
    label: 'What the streams of one rank run, over time',
    caption: `One rank's streams: what runs beside computation is hidden, what computation waits for is exposed.${coarse}${fewer}`,
    height: () => 100 + 40 * lanes.length, zoom: true,
    controls: el('div', { class: 'controls' }, el('label', { for: id }, 'Streams of'), select, zoomControls(() => self)),
    zoomed: striped.zoomed,
    walk: () => striped.places.map((lane) => lane.length),
    tell: (lane, at, made) => {
      const [series, index] = striped.places[lane][at];
      showPoint(made, series, index);
      return text(series, index);
    },
    option: () => {
      striped.fill(self);
      return overTime(timeline, lanes.map((lane) => lane.stream.replace(/_/g, ' ')),
        kinds.map((kind, series) => bars(partName(timeline.kinds[kind]), partColour(timeline.kinds[kind]), striped.data(series), 0.75)), text);
    },
  });
  return self;
}

function timelineSection(plan) {
  const timeline = plan.timeline;
  if (!timeline || !timeline.rows) return [el('p', {}, 'Nothing was simulated.')];
  const streams = streamsChart(timeline);
  return [ranksChart(plan, timeline).figure, streams && streams.figure];
}
