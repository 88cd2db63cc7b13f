// What-ifs: time against cost, and how rates grow with devices.
const lawNames = { amdahl: 'Amdahl', gustafson: 'Gustafson', usl: 'USL' };

function lawRate(fit, n) {
  if (fit.law === 'gustafson') return fit.rate_of_one * (fit.serial + (1 - fit.serial) * n);
  return fit.rate_of_one * n / (1 + fit.serial * (n - 1) + (fit.pairs || 0) * n * (n - 1));
}

// One digit that counts, at most `value`.
const evenDown = (value) => Math.floor(value / 10 ** Math.floor(Math.log10(value))) * 10 ** Math.floor(Math.log10(value));

function scalingChart(scaling) {
  const points = scaling.points.map((point) => [point.devices, point.rate, point.rate_low ?? point.rate, point.rate_high ?? point.rate]);
  const unit = scaling.unit;
  const least = Math.min(...points.map((point) => point[0])), most = Math.max(...points.map((point) => point[0])) * 2;
  const first = points.find((point) => point[0] === least);
  const along = (f) => Array.from({ length: 49 }, (value, i) => least * (most / least) ** (i / 48)).map((n) => [n, f(n)]);
  const fitText = (fit) => `${lawNames[fit.law]}: serial share ${percent(fit.serial, 3)}${fit.pairs ? `, ${fit.pairs.toPrecision(2)} of each pair${fit.most_devices ? `, most at ${exact(Math.round(fit.most_devices))} devices` : ''}` : ''} (off by ${percent(fit.error, 2)})`;
  const text = (point) => `${exact(point[0])} devices: ${count(point[1])} ${unit}/s (${count(point[2])} to ${count(point[3])}), ${percent(point[1] / point[0] / (first[1] / first[0]))} of the first point's rate a device`;
  return [
    chart({
      label: `${unit} a second by devices, with laws of scaling fitted`,
      caption: `${scaling.strong ? 'The same global batch everywhere (strong scaling)' : 'A batch that differs between points'}: planned points with intervals of 90%, and laws fitted to them, drawn on to twice the devices.${scaling.fits.length === 0 ? ' Fewer than three points: two fit any law.' : ''}`,
      height: 350,
      walk: () => [points.length],
      tell: (series, at, made) => { showPoint(made, 1, at); return text(points[at]); },
      option: () => ({
        grid: { left: 16, right: 24, top: 16, bottom: 40, containLabel: true },
        legend: { data: ['planned', 'as fast a device as the first', ...scaling.fits.map((fit) => lawNames[fit.law])] },
        tooltip: { trigger: 'item', formatter: (at) => escaped(at.seriesName === 'planned' ? text(at.data) : at.seriesName) },
        xAxis: axis({ type: 'log', logBase: 2, name: 'devices', nameLocation: 'middle', nameGap: 28, min: 2 ** Math.floor(Math.log2(least)), max: 2 ** Math.ceil(Math.log2(most)), axisLabel: { formatter: count } }),
        yAxis: axis({ type: 'log', min: evenDown(Math.min(...points.map((point) => point[2]))), axisLabel: { formatter: (value) => `${plain(count(value))}/s`, showMinLabel: false } }),
        series: [
          whiskers('90%', points, palette().soft, false),
          { name: 'planned', type: 'scatter', symbolSize: 11, data: points, itemStyle: { color: palette().series[0] }, z: 5 },
          { name: 'as fast a device as the first', type: 'line', symbol: 'none', data: along((n) => first[1] * n / first[0]), lineStyle: { type: 'dotted', color: palette().soft }, color: palette().soft },
          ...scaling.fits.map((fit, i) => ({ name: lawNames[fit.law], type: 'line', symbol: 'none', color: palette().series[i + 1], data: along((n) => lawRate(fit, n)), lineStyle: { type: ['solid', 'dashed', [8, 3, 2, 3]][i] } })),
        ],
      }),
      table: [['devices', `${unit}/s`, '90% interval'], points.map((point) => [exact(point[0]), count(point[1]), `${count(point[2])} to ${count(point[3])}`])],
    }).figure,
    scaling.fits.length > 0 && el('ul', {}, scaling.fits.map((fit) => el('li', {}, fitText(fit)))),
  ];
}

const variedText = (point) => Object.entries(point.vary).map(([key, value]) => `${key} ${value}`).join(', ') || 'as asked';

function costPoints(whatif) {
  return whatif.points.map((point, at) => ({ point, at })).filter(({ point }) => point.step_time_s !== undefined).map(({ point, at }) => {
    const whole = point.days_low === undefined ? Object.values(point).find((value) => value && value.days_low !== undefined) || {} : point;
    const time = whole.time_to_train_s ?? whole.time_s;
    return { at, point, time, low: (whole.days_low ?? time / 86400) * 86400, high: (whole.days_high ?? time / 86400) * 86400, usd: whole.cost_usd, usdLow: whole.usd_low, usdHigh: whole.usd_high, energy: whole.energy_j };
  });
}

function costChart(whatif, points) {
  const priced = points.filter((one) => one.usd !== undefined);
  if (priced.length === 0) return null;
  const text = (one) => `${variedText(one.point)}: ${seconds(one.time)} (${seconds(one.low)} to ${seconds(one.high)}), ${usd(one.usd)} (${usd(one.usdLow)} to ${usd(one.usdHigh)}); ${one.point.plan}`;
  const groups = [['on the front', priced.filter((one) => whatif.front.includes(one.at)), 0, 'circle'], ['beaten in both', priced.filter((one) => !whatif.front.includes(one.at)), 7, 'diamond']].filter((group) => group[1].length > 0);
  const all = groups.flatMap((group) => group[1]);
  return chart({
    label: 'Time against cost of each point',
    caption: 'Time against cost with intervals of 90%, by the price of the devices’ hours; on the front no other point is both faster and cheaper.',
    height: 330,
    walk: () => groups.map((group) => group[1].length),
    tell: (group, at, made) => { showPoint(made, 2 + group, at); return text(groups[group][1][at]); },
    option: () => ({
      grid: { left: 16, right: 30, top: 16, bottom: 40, containLabel: true }, legend: { data: groups.map((group) => group[0]) },
      tooltip: { trigger: 'item', formatter: (at) => escaped(text(groups[at.seriesIndex - 2][1][at.dataIndex])), extraCssText: 'max-width:26rem;white-space:normal' },
      xAxis: roundTimeAxis(Math.min(...all.map((one) => one.low)), Math.max(...all.map((one) => one.high)), { name: 'time', nameLocation: 'middle', nameGap: 28 }),
      yAxis: axis({ type: 'value', scale: true, axisLabel: { formatter: usd } }),
      series: [
        whiskers('time', all.map((one) => [one.time, one.usd, one.low, one.high]), palette().soft, true),
        whiskers('cost', all.map((one) => [one.time, one.usd, one.usdLow, one.usdHigh]), palette().soft, false),
        ...groups.map(([name, list, colour, symbol]) => ({
          name, type: 'scatter', symbol, symbolSize: 13, itemStyle: { color: palette().series[colour] }, data: list.map((one) => [one.time, one.usd]),
          // Off both whiskers.
          label: { show: true, position: [15, -7], color: palette().ink, fontSize: letters(12), formatter: (at) => variedText(list[at.dataIndex].point) }, labelLayout: { hideOverlap: true },
        })),
      ],
    }),
  }).figure;
}

function whatifSection(whatif) {
  const points = costPoints(whatif);
  const goal = whatif.tokens ?? whatif.samples ?? 1e9;
  const what = whatif.tokens !== undefined ? 'tokens' : whatif.samples !== undefined ? 'samples' : 'tokens or samples';
  const best = (index) => points.find((one) => one.at === index);
  const cheapest = best(whatif.cheapest), fastest = best(whatif.fastest);
  const range = (one) => `${seconds(one.low)} to ${seconds(one.high)}`;
  const tiles = el('dl', { class: 'tiles' },
    fastest && tile('Fastest', seconds(fastest.time), `${variedText(fastest.point)}; 90% interval ${range(fastest)}`),
    cheapest && cheapest.usd !== undefined && tile('Cheapest', usd(cheapest.usd), `${variedText(cheapest.point)}; 90% interval ${usd(cheapest.usdLow)} to ${usd(cheapest.usdHigh)}`));
  const rows = whatif.points.map((point, at) => {
    const one = best(at);
    if (!one) return [variedText(point), '', '', '', '', '', point.refusal || ''];
    return [variedText(point) + (at === whatif.fastest ? ', fastest' : '') + (at === whatif.cheapest ? ', cheapest' : ''), seconds(point.step_time_s), percent(point.mfu),
      `${seconds(one.time)} (${range(one)})`, one.usd === undefined ? '' : usd(one.usd), one.energy ? energy(one.energy) : '', point.plan];
  });
  return [
    el('p', {}, `To train on ${count(goal)} ${what}.`), tiles,
    costChart(whatif, points),
    whatif.scaling && scalingChart(whatif.scaling),
    tableOf(['varied', 'step', 'MFU', 'time (90%)', 'cost', 'energy', '~plan'], rows, { label: 'Every point', chosen: whatif.fastest }),
  ];
}
