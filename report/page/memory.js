// What a device holds over a step.
const memoryParts = ['weights', 'gradients', 'optimizer', 'buffers', 'margin', 'kept', 'transient'];
const memoryNames = {
  weights: 'weights', gradients: 'gradients', optimizer: 'optimizer states', buffers: 'buffers',
  margin: 'allocator and context', kept: 'activations kept', transient: 'activations of a moment',
};

function memorySection(plan) {
  const memory = plan.memory;
  if (!memory || memory.stages.length === 0) return [];
  let stage = memory.stages.find((one) => one.stage === memory.fullest) || memory.stages[0];
  let self = null;
  const at = (part, point) => stage.bytes[part] * (part === 'kept' ? stage.kept[point] / 1000 : part === 'transient' ? stage.transient[point] / 1000 : 1);
  const time = (point) => memory.step_s * (point + 0.5) / memory.points;
  const text = (point) => `${seconds(time(point))}: ${memoryParts.map((part) => `${memoryNames[part]} ${bytes(at(part, point))}`).join(', ')}; together ${bytes(memoryParts.reduce((sum, part) => sum + at(part, point), 0))} of ${bytes(stage.capacity_bytes)}`;
  // A plan that leaves a device nearly empty is no line at the bottom of its capacity.
  const small = memory.stages.every((one) => one.capacity_bytes > 10 * one.total_bytes);
  const id = newId('stage');
  const select = memory.stages.length > 1 && el('select', { id, onchange: (event) => { stage = memory.stages[Number(event.target.value)]; self.draw(); } },
    memory.stages.map((one, i) => el('option', { value: i, selected: one === stage }, `stage ${one.stage}${one.stage === memory.fullest ? ' (fullest)' : ''}: ${bytes(one.total_bytes)}`)));
  self = chart({
    label: 'Memory of a device over a step',
    caption: 'A device of one stage over the step: what stays, and the activations of the micro-batches in flight. Their peak is the memory model’s; the curve between follows the timeline by operators.' + (small ? ` The capacity, ${bytes(stage.capacity_bytes)}, is far above.` : ''),
    height: 330,
    controls: select && el('div', { class: 'controls' }, el('label', { for: id }, 'Device of'), select),
    walk: () => [memory.points],
    tell: (series, point, made) => { showPoint(made, 0, point); return text(point); },
    option: () => ({
      grid: { left: 8, right: 24, top: 16, bottom: 24, containLabel: true }, legend: {},
      tooltip: { trigger: 'axis', formatter: (at) => escaped(text(at[0].dataIndex)), extraCssText: 'max-width:24rem;white-space:normal' },
      xAxis: timeAxis(memory.step_s),
      yAxis: bytesAxis(small ? stage.total_bytes : Math.max(stage.total_bytes, stage.capacity_bytes)),
      series: memoryParts.map((part, i) => ({
        name: memoryNames[part], type: 'line', step: 'middle', stack: 'bytes', symbol: 'none', lineStyle: { width: 0 },
        areaStyle: { opacity: 0.85 }, color: palette().series[[0, 1, 3, 7, 4, 2, 5][i]], data: stage.kept.map((value, point) => [time(point), at(part, point)]),
        ...(i === 0 && !small ? {
          markLine: {
            symbol: 'none', silent: true, data: [{ yAxis: stage.capacity_bytes }], lineStyle: { color: palette().parts.data_comm, type: 'dashed', width: 2 },
            label: { formatter: `capacity ${bytes(stage.capacity_bytes)}`, position: 'insideEndTop', color: palette().ink, fontSize: letters(12) },
          },
        } : {}),
      })),
    }),
    table: [['bytes', ...memory.stages.map((one) => `stage ${one.stage}`)],
      [...memoryParts.map((part) => [memoryNames[part], ...memory.stages.map((one) => bytes(one.bytes[part]))]),
        ['together', ...memory.stages.map((one) => bytes(one.total_bytes))], ['capacity', ...memory.stages.map((one) => bytes(one.capacity_bytes))]]],
  });
  return [self.figure];
}
