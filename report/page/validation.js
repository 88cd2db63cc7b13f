// Predicted against measured.
function validationSection(validation) {
  const kinds = validation.by_kind;
  const error = (row) => (row.relative_error === undefined ? '' : signed(row.relative_error));
  const measured = validation.measured;
  const tiles = el('dl', { class: 'tiles' },
    tile('Predicted', seconds(validation.predicted_step_time_s), 'a step'),
    tile('Measured', seconds(validation.measured_step_time_s), measured ? `${seconds(measured.min)} to ${seconds(measured.max)} over ${validation.steps} steps` : 'a step'),
    tile('Off by', signed(validation.relative_error), 'of what was measured'),
    validation.memory && tile('Memory', signed(validation.memory.predicted_bytes / validation.memory.measured_bytes - 1), `${bytes(validation.memory.predicted_bytes)} predicted, ${bytes(validation.memory.measured_bytes)} measured`));
  if (kinds.length === 0) return [tiles, validation.rows && tableOf(['~from', 'measured', 'off by'], validation.rows.map((row) => [`${row.file}:${row.line}`, seconds(row.measured_s), error(row)]))];
  const text = (which, at) => `${partName(kinds[at].kind)}: ${which === 0 ? `predicted ${seconds(kinds[at].predicted_s)}` : `measured ${seconds(kinds[at].measured_s)}`}, off by ${error(kinds[at])}`;
  return [
    tiles,
    chart({
      label: 'Predicted and measured time by kind of instruction',
      caption: 'Seconds that a rank’s instructions of each kind take in a step, mean over the ranks.',
      height: 50 + 44 * kinds.length,
      walk: () => [kinds.length, kinds.length],
      tell: (which, at, made) => { showPoint(made, which, at); return text(which, at); },
      option: () => ({
        grid: { left: 8, right: 24, top: 8, bottom: 8, containLabel: true }, legend: {},
        tooltip: { trigger: 'item', formatter: (at) => escaped(text(at.seriesIndex, at.dataIndex)) },
        xAxis: axis({ type: 'value', axisLabel: { formatter: timeTick } }),
        yAxis: axis({ type: 'category', inverse: true, data: kinds.map((kind) => partName(kind.kind)), axisLabel: { width: window.innerWidth < 700 ? 90 : 220, overflow: 'break' } }),
        series: [['predicted', 'predicted_s', 0], ['measured', 'measured_s', 1]].map(([name, field, colour]) => ({
          name, type: 'bar', barMaxWidth: 14, itemStyle: { color: palette().series[colour] }, data: kinds.map((kind) => kind[field]),
        })),
      }),
      table: [['kind', 'predicted', 'measured', 'off by'], kinds.map((kind) => [partName(kind.kind), seconds(kind.predicted_s), seconds(kind.measured_s), error(kind)])],
    }).figure,
  ];
}

function publishedSection(published) {
  const all = published.all, rows = published.rows;
  const file = (row) => row.file.replace(/^.*\//, '');
  const files = [...new Set(rows.map(file))];
  const by = files.map((name) => rows.filter((row) => file(row) === name));
  const ends = rows.flatMap((row) => [row.predicted_s, row.measured_s]);
  const least = Math.min(...ends) * 0.8, most = Math.max(...ends) * 1.25;
  const text = (row) => `${[row.model, row.collective, row.gpu && `${row.n_gpus} × ${row.gpu}`, row.size_bytes && bytes(row.size_bytes), row.plan].filter(Boolean).join(', ')}: predicted ${seconds(row.predicted_s)}, measured ${seconds(row.measured_s)}, off by ${signed(row.relative_error)}`;
  const line = (factor) => ({ type: 'line', symbol: 'none', silent: true, data: [[least, least * factor], [most, most * factor]], lineStyle: { color: palette().soft, type: factor === 1 ? 'solid' : 'dashed', width: 1 }, tooltip: { show: false } });
  const symbols = ['circle', 'diamond', 'triangle', 'rect', 'pin', 'roundRect'];
  return [
    el('dl', { class: 'tiles' },
      tile('Median error', percent(all.median_ape), `of ${all.rows} rows${all.skipped ? `; ${all.skipped} skipped` : ''}`),
      tile('Within 10%', percent(all.within_10_percent, 0), 'of the rows'),
      tile('Bias', signed(all.bias), 'mean signed error'),
      all.coverage !== undefined && tile('In the interval', percent(all.coverage, 0), 'of those measured; 90% is promised')),
    rows.length > 0 && chart({
      label: `Predicted against measured, ${rows.length} rows`,
      caption: `Every row of the tables${rows.length < published.rows_in_all ? ` (${rows.length} of ${published.rows_in_all} drawn)` : ''}: on the line prediction and measurement agree, the dashed ones are 10% off.`,
      height: 460,
      walk: () => by.map((list) => list.length),
      tell: (group, at, made) => { showPoint(made, 3 + group, at); return text(by[group][at]); },
      option: () => ({
        grid: { left: 16, right: 24, top: 16, bottom: 40, containLabel: true }, legend: { data: files },
        tooltip: { trigger: 'item', formatter: (at) => escaped(at.seriesIndex >= 3 ? text(by[at.seriesIndex - 3][at.dataIndex]) : ''), extraCssText: 'max-width:26rem;white-space:normal' },
        xAxis: axis({ type: 'log', min: least, max: most, name: 'measured', nameLocation: 'middle', nameGap: 28, axisLabel: { formatter: timeTick, showMinLabel: false, showMaxLabel: false } }),
        yAxis: axis({ type: 'log', min: least, max: most, name: 'predicted', axisLabel: { formatter: timeTick, showMinLabel: false, showMaxLabel: false } }),
        series: [line(1), line(1.1), line(1 / 1.1), ...files.map((name, i) => ({
          name, type: 'scatter', symbolSize: 8, symbol: symbols[i % symbols.length], itemStyle: { color: palette().series[i % 8], opacity: 0.8 }, data: by[i].map((row) => [row.measured_s, row.predicted_s]),
        }))],
      }),
    }).figure,
    tableOf(['table', 'rows', 'median error', 'mean error', 'bias'], Object.entries(published.sources).map(([name, block]) => [name.replace(/^.*\//, ''), block.rows, percent(block.median_ape), percent(block.mape), signed(block.bias)]), { label: 'Errors by table' }),
  ];
}
