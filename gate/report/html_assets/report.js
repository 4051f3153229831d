(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();
  const el = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const svg = (tag, attributes) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    return e;
  };

  // ---- numbers: a value that is not there is "not measured", never 0 ----
  const digits = (v, n = 3) => {
    if (v === 0) return '0';
    const d = Math.max(0, n - 1 - Math.floor(Math.log10(Math.abs(v))));
    const t = v.toFixed(Math.min(d, 6));
    return t.includes('.') ? t.replace(/\.?0+$/, '') : t.replace(/\B(?=(\d{3})+$)/g, ',');
  };
  const plain = (v) => (Math.abs(v) >= 1e6 ? digits(v / 1e6) + 'M' : Math.abs(v) >= 1e4 ? digits(v / 1e3) + 'k' : digits(v));
  const ms = (v) => (Math.abs(v) >= 1000 ? digits(v / 1000) + ' s' : digits(v) + ' ms');
  const percent = (v) => digits(100 * v) + '%';
  const clock = (s) => {
    const sign = s < 0 ? '−' : '';
    const t = Math.round(Math.abs(s));
    const two = (n) => String(n).padStart(2, '0');
    return sign + (t >= 3600 ? Math.floor(t / 3600) + ':' + two(Math.floor(t / 60) % 60) : Math.floor(t / 60)) + ':' + two(t % 60);
  };
  const known = (a) => Array.isArray(a) && a.some((v) => v !== null && v !== undefined);
  const shown = (v, format) => (v === null || v === undefined ? 'not measured' : format(v));

  // ---- one chart ----
  const charts = [];
  const font = (px) => px + 'px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif';

  function swatch(s) {
    const g = svg('svg', { class: 'sw', viewBox: '0 0 24 10', 'aria-hidden': 'true' });
    if (s.kind === 'bars') g.append(svg('rect', { x: 5, y: 1, width: 14, height: 8, class: s.color + (s.hollow ? '' : ' solid') }));
    else if (s.kind === 'mark') g.append(markShape(s));
    else g.append(svg('line', { x1: 0, y1: 5, x2: 24, y2: 5, class: s.color, 'stroke-dasharray': (s.dash || []).join(' ') }));
    return g;
  }
  function markShape(s) {
    if (s.mark === 'square') return svg('rect', { x: 8, y: 1, width: 8, height: 8, class: s.color });
    if (s.mark === 'triangle') return svg('path', { d: 'M12 1 L17 9 L7 9 Z', class: s.color });
    return svg('circle', { cx: 12, cy: 5, r: 4, class: s.color });
  }

  // add puts a figure for spec into a grid. spec: title, what, x, series[{label, values, color, dash, scale, format, …}],
  // xFormat, xLabel, and optionally log, stretches, steps, limits, wide, marks.
  function add(grid, spec) {
    const figure = el('figure', spec.wide ? 'wide' : '');
    const caption = el('figcaption');
    caption.append(el('h4', '', spec.title), el('p', '', spec.what));
    figure.append(caption);
    grid.append(figure);
    const missing = spec.series.filter((s) => !known(s.values)).map((s) => s.label);
    spec.series = spec.series.filter((s) => known(s.values));
    if (!spec.series.length || !spec.x.length) {
      figure.append(el('div', 'absent', spec.absent || 'not measured'));
      return;
    }
    const plot = el('div', 'plot');
    plot.tabIndex = 0;
    plot.setAttribute('role', 'group');
    plot.setAttribute('aria-roledescription', 'chart');
    plot.setAttribute('aria-label', spec.title + ': ' + spec.series.map(summary).join('; ') + '. Left and right arrow keys read the values.');
    const legend = el('div', 'legend');
    const live = el('div', 'sr');
    live.setAttribute('aria-live', 'polite');
    figure.append(plot, legend, live);
    const tip = el('div', 'tip');
    tip.hidden = true;
    const at = el('div', 'at');
    tip.append(at);
    const values = spec.series.map((s) => {
      const row = el('div', 'row');
      const v = el('span', 'val');
      row.append(swatch(s), el('span', '', s.label), v);
      tip.append(row);
      return v;
    });
    spec.series.forEach((s, i) => {
      const b = el('button');
      b.type = 'button';
      b.setAttribute('aria-pressed', 'true');
      b.append(swatch(s), el('span', '', (s.letter ? s.letter + ' ' : '') + s.label));
      b.addEventListener('click', () => {
        s.hidden = !s.hidden;
        b.setAttribute('aria-pressed', String(!s.hidden));
        chart.u.setSeries(i + 1, { show: !s.hidden });
      });
      legend.append(b);
    });
    (spec.limits || []).forEach((l) => {
      const s = el('span', 'at');
      s.append(swatch({ color: 'limit', dash: [5, 4] }), ' ' + l.label);
      legend.append(s);
    });
    (spec.verticals || []).filter((v) => v.label).forEach((v) => {
      const s = el('span', 'at');
      s.append(swatch(v), ' ' + (v.letter ? v.letter + ' ' : '') + 'Safe QPS of ' + v.label + ': ' + spec.xFormat(v.value));
      legend.append(s);
    });
    if (missing.length) legend.append(el('span', 'at', missing.join(', ') + ': not measured'));

    const chart = { spec, plot, u: null, draw: null };
    chart.read = (idx, left) => {
      tip.hidden = idx === null || idx === undefined;
      if (tip.hidden) return;
      at.textContent = spec.xFormat(spec.x[idx], idx);
      spec.series.forEach((s, i) => { values[i].textContent = shown(s.values[idx], s.format); });
      const over = chart.u.over;
      const right = left > over.clientWidth / 2; // the box keeps to the other side of the cursor
      tip.style.left = right ? '' : over.offsetLeft + left + 12 + 'px';
      tip.style.right = right ? plot.clientWidth - over.offsetLeft - left + 12 + 'px' : '';
    };
    chart.draw = () => {
      chart.stale = !plot.clientWidth; // in a run that is not shown: drawn when it is
      if (chart.stale) return;
      if (chart.u) chart.u.destroy();
      tip.hidden = true;
      chart.u = new uPlot(options(spec, plot.clientWidth, chart), [spec.x, ...spec.series.map((s) => s.values)], plot);
      plot.append(tip);
      plot.dataset.drawn = 'true';
    };
    plot.addEventListener('keydown', (event) => {
      const last = spec.x.length - 1;
      const now = chart.idx;
      const page = event.shiftKey ? 10 : 1;
      let next;
      if (event.key === 'ArrowRight') next = now === undefined ? 0 : Math.min(last, now + page);
      else if (event.key === 'ArrowLeft') next = now === undefined ? last : Math.max(0, now - page);
      else if (event.key === 'Home') next = 0;
      else if (event.key === 'End') next = last;
      else if (event.key === 'Escape') {
        chart.idx = undefined;
        chart.u.setCursor({ left: -10, top: -10 });
        return;
      } else return;
      event.preventDefault();
      chart.idx = next;
      chart.u.setCursor({ left: chart.u.valToPos(spec.x[next], 'x'), top: 10 });
      live.textContent = spec.xFormat(spec.x[next], next) + ': ' +
        spec.series.map((s) => s.label + ' ' + shown(s.values[next], s.format)).join(', ');
    });
    figure.append(dataTable(spec));
    charts.push(chart);
    chart.draw();
  }

  function summary(s) {
    let low = Infinity, high = -Infinity;
    for (const v of s.values) if (v !== null && v !== undefined) { low = Math.min(low, v); high = Math.max(high, v); }
    return s.label + ' from ' + s.format(low) + ' to ' + s.format(high);
  }

  // dataTable is the chart in words; it is built when it is opened.
  function dataTable(spec) {
    const details = el('details');
    details.append(el('summary', '', 'Data table'));
    details.addEventListener('toggle', () => {
      if (!details.open || details.querySelector('table')) return;
      const table = el('table');
      const head = el('tr');
      for (const label of [spec.xLabel, ...spec.series.map((s) => s.label)]) {
        const th = el('th', label === spec.xLabel ? '' : 'n', label);
        th.scope = 'col';
        head.append(th);
      }
      const thead = el('thead'), body = el('tbody');
      thead.append(head);
      spec.x.forEach((x, i) => {
        const tr = el('tr');
        const th = el('th', '', spec.xFormat(x, i));
        th.scope = 'row';
        tr.append(th, ...spec.series.map((s) => el('td', 'n', shown(s.values[i], s.format))));
        body.append(tr);
      });
      table.append(thead, body);
      const box = el('div', 'scroll tall');
      box.tabIndex = 0;
      box.setAttribute('role', 'region');
      box.setAttribute('aria-label', spec.title + ', data');
      box.append(table);
      details.append(box);
    });
    return details;
  }

  const bars = (align) => uPlot.paths.bars({ size: [0.42, 26], align, gap: 1 });
  const alpha = (color, a) => {
    const n = parseInt(color.slice(1), 16);
    return 'rgba(' + (n >> 16) + ',' + ((n >> 8) & 255) + ',' + (n & 255) + ',' + a + ')';
  };

  function seriesOptions(s) {
    const color = css(s.color);
    const o = {
      label: s.label, scale: s.scale || 'y', stroke: color, width: s.width || 1.5, dash: s.dash, spanGaps: !!s.span, show: !s.hidden,
      // A value between two gaps has no line: it gets a point of its own.
      points: { show: false, size: 4, fill: color, width: 0, filter: (u, i) => (s.verdicts || s.span ? null : lonely(u.data[i])) },
    };
    if (s.fill) o.fill = alpha(color, s.fill);
    if (s.kind === 'bars') {
      o.paths = bars(s.align);
      o.fill = s.hollow ? 'transparent' : alpha(color, 0.75);
      o.width = 1.5;
      o.points = { show: false };
    }
    if (s.kind === 'mark') {
      o.paths = () => null;
      o.points = { show: false };
    }
    return o;
  }
  function lonely(values) {
    const out = [];
    const no = (v) => v === null || v === undefined;
    for (let i = 0; i < values.length; i++) if (!no(values[i]) && no(values[i - 1]) && no(values[i + 1])) out.push(i);
    return out.length ? out : null;
  }

  function options(spec, width, chart) {
    const narrow = width < 420;
    const axis = (more) => ({
      stroke: css('tick'), font: font(11), labelFont: font(11), labelSize: 16, grid: { stroke: css('grid'), width: 1 },
      ticks: { stroke: css('grid'), width: 1, size: 4 }, gap: 4, ...more,
    });
    const scales = { x: { time: false, ...(spec.xScale || {}) } };
    const axes = [axis({ space: narrow ? 44 : 60, size: 30, values: (u, splits) => splits.map((v) => (v === null ? '' : spec.xTick ? spec.xTick(v) : spec.xFormat(v))), ...(spec.xAxis || {}) })];
    const names = [...new Set(spec.series.map((s) => s.scale || 'y'))];
    names.forEach((name, i) => {
      const of = spec.series.filter((s) => (s.scale || 'y') === name);
      const format = of[0].format;
      const isLog = spec.log && name === 'y';
      scales[name] = isLog
        ? { distr: 3, range: (u, low, high) => logRange(low, high, spec.limits) }
        : { range: (u, low, high) => linearRange(low, high, of[0], name === 'y' ? spec.limits : []) };
      axes.push(axis({
        scale: name, side: i === 0 ? 3 : 1, size: i === 0 ? 58 : 46, grid: { show: i === 0, stroke: css('grid'), width: 1 },
        show: !(narrow && i > 1), stroke: i === 0 ? css('tick') : css(of[0].color), space: isLog ? 22 : 30,
        ...(isLog ? { splits: logSplits } : {}),
        values: (u, splits) => splits.map((v) => (v === null ? '' : format(v))),
      }));
    });
    return {
      width, height: narrow ? 210 : spec.wide ? 280 : 230, padding: [(spec.stretches && spec.stretches.length) || spec.series.some((s) => s.letter) ? 18 : 8, names.length > 1 ? 0 : 12, 0, 0],
      legend: { show: false }, scales, axes, series: [{}, ...spec.series.map(seriesOptions)],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: spec.sync ? { key: spec.sync, setSeries: false } : undefined },
      hooks: {
        drawClear: [(u) => shade(u, spec)],
        draw: [(u) => overlay(u, spec)],
        setCursor: [(u) => chart.u === u && chart.read(u.cursor.left < 0 ? null : u.cursor.idx, u.cursor.left)],
      },
    };
  }

  const withLimits = (high, limits) => {
    // A limit far above all values would flatten them: it is then told in the legend only.
    for (const l of limits || []) if (l.value > high && l.value < 4 * high) high = l.value;
    return high;
  };
  function linearRange(low, high, { top, least }, limits) {
    if (low === null) return [0, 1];
    const h = Math.max(withLimits(high, limits), least || 0);
    const reach = h > 0 ? h * 1.08 : 1;
    return [Math.min(0, low), top !== undefined && h <= top && h > top / 4 ? top * 1.05 : reach];
  }
  function logRange(low, high, limits) {
    if (low === null || low <= 0) return [1, 10];
    const h = withLimits(high, limits);
    return [low / 1.25, h * 1.25];
  }
  function logSplits(u, axisIdx, low, high) {
    const out = [];
    const steps = high / low > 200 ? [1] : high / low > 30 ? [1, 3] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const m of steps) {
        const v = m * Math.pow(10, e);
        if (v >= low && v <= high) out.push(v);
      }
    }
    return out.length > 1 ? out : [low, Math.sqrt(low * high), high];
  }

  // shade draws phases behind the data, with their names: colour alone says nothing.
  function shade(u, spec) {
    const c = u.ctx, r = devicePixelRatio, b = u.bbox;
    c.save();
    c.font = font(10.5 * r);
    c.textBaseline = 'bottom';
    for (const s of spec.stretches || []) {
      const from = Math.max(b.left, u.valToPos(s.from, 'x', true)), to = Math.min(b.left + b.width, u.valToPos(s.to, 'x', true));
      if (!(to > from)) continue;
      const fill = css(s.name);
      if (fill) {
        c.fillStyle = fill;
        c.fillRect(from, b.top, to - from, b.height);
      }
      c.fillStyle = css('muted');
      if (c.measureText(s.name).width + 6 * r < to - from) c.fillText(s.name, from + 2 * r, b.top - 3 * r);
    }
    for (const s of spec.steps || []) {
      const x = u.valToPos(s.from, 'x', true);
      if (x < b.left || x > b.left + b.width) continue;
      line(c, x, b.top, x, b.top + b.height, css('line-strong'), 1 * r, [2 * r, 3 * r]);
      if (spec.steps.length <= 12) {
        c.fillStyle = css('muted');
        c.textBaseline = 'top';
        c.fillText(s.name, x + 3 * r, b.top + 2 * r);
      }
    }
    c.restore();
  }
  function line(c, x1, y1, x2, y2, color, width, dash) {
    c.beginPath();
    c.setLineDash(dash || []);
    c.moveTo(x1, y1);
    c.lineTo(x2, y2);
    c.strokeStyle = color;
    c.lineWidth = width;
    c.stroke();
    c.setLineDash([]);
  }

  // overlay draws limits, ranges and the marks of verdicts over the data.
  function overlay(u, spec) {
    const c = u.ctx, r = devicePixelRatio, b = u.bbox;
    c.save();
    c.beginPath();
    c.rect(b.left, b.top - 1, b.width, b.height + 2);
    c.clip();
    for (const l of spec.limits || []) {
      const y = u.valToPos(l.value, l.scale || 'y', true);
      if (y >= b.top && y <= b.top + b.height) line(c, b.left, y, b.left + b.width, y, css('limit'), 1.5 * r, [5 * r, 4 * r]);
    }
    for (const v of spec.verticals || []) {
      const x = u.valToPos(v.value, 'x', true);
      line(c, x, b.top, x, b.top + b.height, css(v.color), 1.5 * r, [6 * r, 3 * r]);
      if (!v.letter) continue;
      c.fillStyle = css(v.color);
      c.font = 'bold ' + font(10 * r);
      c.textBaseline = 'bottom';
      // Two answers can lie at one rate: each letter has a height of its own.
      c.fillText(v.letter, x + 3 * r, b.top + b.height - (3 + 11 * (v.letter.charCodeAt(0) - 65)) * r);
    }
    if (spec.ranges) {
      spec.x.forEach((x, i) => {
        const ys = spec.series.filter((s) => !s.hidden && s.values[i] !== null).map((s) => u.valToPos(s.values[i], 'y', true));
        if (ys.length) line(c, u.valToPos(x, 'x', true), Math.min(...ys), u.valToPos(x, 'x', true), Math.max(...ys), css('grey'), 2 * r);
      });
    }
    c.restore();
    c.save();
    for (const s of spec.series) {
      if (s.hidden || !(s.kind === 'mark' || s.verdicts)) continue; // lines without verdicts have no marks
      s.values.forEach((v, i) => {
        if (v === null || v === undefined) return;
        if (s.letter) {
          c.fillStyle = css(s.color);
          c.font = 'bold ' + font(10 * r);
          c.textAlign = 'center';
          c.textBaseline = 'bottom';
          // Points of several curves often lie at one rate: each letter has its own place beside the point.
          c.fillText(s.letter, u.valToPos(spec.x[i], 'x', true) + 8 * r * s.place, u.valToPos(v, s.scale || 'y', true) - 6 * r);
        }
        mark(c, u.valToPos(spec.x[i], 'x', true), u.valToPos(v, s.scale || 'y', true), css(s.color), r, s.verdicts ? { PASS: 'dot', FAIL: 'cross' }[s.verdicts[i]] || 'circle' : s.mark);
      });
    }
    c.restore();
  }
  function mark(c, x, y, color, r, shape) {
    const d = 4 * r;
    c.strokeStyle = color;
    c.fillStyle = css('surface');
    c.lineWidth = 2 * r;
    c.setLineDash([]);
    c.beginPath();
    if (shape === 'cross') {
      c.moveTo(x - d, y - d); c.lineTo(x + d, y + d); c.moveTo(x + d, y - d); c.lineTo(x - d, y + d);
      c.stroke();
      return;
    }
    if (shape === 'square') c.rect(x - d, y - d, 2 * d, 2 * d);
    else if (shape === 'triangle') { c.moveTo(x, y - 1.2 * d); c.lineTo(x + 1.2 * d, y + d); c.lineTo(x - 1.2 * d, y + d); c.closePath(); }
    else c.arc(x, y, d, 0, 2 * Math.PI);
    if (shape === 'dot') c.fillStyle = color;
    c.fill();
    c.stroke();
  }

  // ---- charts of one run ----
  const column = (series, name) => series.columns[name] || [];
  const limit = (limits, name, format) => (limits[name] === undefined ? [] : [{ value: limits[name], label: 'limit ' + format(limits[name]) }]);
  const spread = (values) => {
    let low = Infinity, high = 0;
    for (const a of values) for (const v of a || []) if (v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
    return high / low;
  };
  const wantsLog = (values) => spread(values) > 30 && values.every((a) => (a || []).every((v) => v === null || v === undefined || v > 0));

  function runCharts(id, run) {
    const grid = (kind) => document.querySelector('[data-charts="' + kind + '"][data-run="' + id + '"]');
    const s = run.series;
    const col = (name) => column(s, name);
    const over = (spec) => ({
      x: s.seconds || [], xFormat: clock, xLabel: 'time since the start', sync: id, stretches: s.phases, steps: s.steps,
      xAxis: { incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400] }, ...spec,
    });
    const bin = s.bin_seconds > 1 ? ' per ' + s.bin_seconds + ' s' : ' per second';
    const time = grid('time'), load = grid('load'), client = grid('client');

    add(time, over({
      title: 'TTFT, queue and KV cache', wide: true, log: wantsLog([col('ttft_p99')]),
      what: 'Time to first token, p99 of the requests that arrived' + bin + ', over the server\'s own queue depth and KV-cache use.',
      limits: limit(run.limits, 'ttft_p99', ms),
      series: [
        { label: 'TTFT p99', values: col('ttft_p99'), color: 'c1', format: ms, width: 2 },
        { label: 'queue depth', values: col('server_queue_depth'), color: 'c2', format: plain, least: 4, scale: 'queue', dash: [6, 3], fill: 0.12 },
        { label: 'KV cache', values: col('server_kv_cache_usage'), color: 'c3', format: percent, scale: 'kv', dash: [2, 3], top: 1 },
      ],
    }));
    const latencies = ['ttft_p50', 'ttft_p95', 'ttft_p99'].map(col);
    add(time, over({
      title: 'Time to first token', log: wantsLog(latencies), what: 'Quantiles of the requests by their arrival' + bin + '.',
      series: [
        { label: 'p50', values: latencies[0], color: 'c3', dash: [2, 3], format: ms },
        { label: 'p95', values: latencies[1], color: 'c2', dash: [6, 3], format: ms },
        { label: 'p99', values: latencies[2], color: 'c1', format: ms },
      ],
    }));
    add(time, over({
      title: 'End to end', log: wantsLog([col('e2e_p99')]), what: 'p99 of the whole answers, by the request\'s arrival' + bin + '.', limits: limit(run.limits, 'e2e_p99', ms),
      series: [{ label: 'E2E p99', values: col('e2e_p99'), color: 'c1', format: ms }],
    }));
    add(time, over({
      title: 'Offered against achieved', what: 'Requests per second: what was due, what completed, what was lost.',
      series: [
        { label: 'offered', values: col('offered'), color: 'grey', dash: [5, 3], format: plain },
        { label: 'completed', values: col('completed'), color: 'c1', format: plain },
        ...['failed', 'dropped', 'cancelled'].filter((n) => col(n).some((v) => v > 0)).map((n, i) => ({ label: n, values: col(n), color: ['c5', 'c2', 'c4'][i], dash: [[2, 2], [8, 3], [3, 5]][i], width: 2, format: plain })),
      ],
    }));
    add(time, over({
      title: 'Tokens per second', what: 'Counted when the answer ends: prompt tokens read, completion tokens written.', limits: limit(run.limits, 'output_tokens_per_second', plain),
      series: [
        { label: 'completion', values: col('completion_tokens'), color: 'c1', format: plain },
        { label: 'prompt', values: col('prompt_tokens'), color: 'c2', dash: [6, 3], scale: 'prompt', format: plain },
      ],
    }));
    add(time, over({
      title: 'Goodput and errors', what: 'Share of the requests that arrived' + bin + ': met every SLO of their own; failed.',
      series: [
        { label: 'goodput', values: col('goodput'), color: 'c3', format: percent, top: 1 },
        { label: 'errors', values: col('error_share'), color: 'c5', dash: [2, 2], width: 2, format: percent, top: 1 },
      ],
    }));
    add(time, over({
      title: 'Concurrency', what: 'Requests in flight as the client sees, and running as the server says: the highest' + bin + '.',
      series: [
        { label: 'in flight', values: col('in_flight'), color: 'c1', format: plain, least: 4 },
        { label: 'running', values: col('server_running'), color: 'c3', dash: [6, 3], format: plain },
      ],
    }));

    [[run.prompt_token_histogram, 'Prompt tokens'], [run.output_token_histogram, 'Completion tokens']].forEach(([h, title]) => add(load, histogram(h, title)));
    add(load, groups(run.input_lengths, 'TTFT by input length', 'From the median to p99, by the number of prompt tokens.', 'prompt tokens'));
    add(load, groups(run.classes, 'TTFT by class', 'From the median to p99, by the workload class of the row.', 'class', 'no request carries a class'));

    add(client, over({
      title: 'CPU, memory, open files', what: 'Use of what the load generator has. Above the limit, its own delays are in every latency.',
      limits: limit(run.limits, 'client_headroom.cpu', percent),
      series: [
        { label: 'CPU', values: col('client_cpu'), color: 'c1', format: percent, top: 1 },
        { label: 'memory', values: col('client_memory'), color: 'c2', dash: [6, 3], format: percent, top: 1 },
        { label: 'open files', values: col('client_open_files'), color: 'c3', dash: [2, 3], format: percent, top: 1 },
      ],
    }));
    const delays = ['client_timer_delay', 'schedule_delay_p99'].map(col);
    add(client, over({
      title: 'Lateness', what: 'How late the generator\'s timers fire, and how late requests are sent against their due time.',
      limits: limit(run.limits, 'client_headroom.timer_delay_p99', ms),
      series: [
        { label: 'timer delay', values: delays[0], color: 'c1', format: ms },
        { label: 'schedule delay p99', values: delays[1], color: 'c2', dash: [6, 3], format: ms },
      ],
    }));
  }

  function histogram(h, title) {
    const x = h ? h.from.map((_, i) => i) : [];
    const both = h && h.asked && h.achieved;
    const label = (i) => (h.from[i] === undefined ? '' : h.from[i] === h.to[i] ? String(h.from[i]) : h.from[i] + '–' + h.to[i]);
    return {
      title, what: 'Requests by length: asked for, and as the answer\'s usage says.', x, xLabel: 'tokens', xFormat: (v, i) => label(i === undefined ? v : i),
      xTick: (v) => (Number.isInteger(v) && h.from[v] !== undefined ? plain(h.from[v]) : ''), xScale: { range: () => [-0.7, x.length - 0.3] }, xAxis: { incrs: [1, 2, 4, 8, 16], space: 34, grid: { show: false } },
      series: [
        { label: 'asked', values: h && h.asked, color: 'grey', kind: 'bars', align: both ? -1 : 0, hollow: true, format: plain },
        { label: 'achieved', values: h && h.achieved, color: 'c1', kind: 'bars', align: both ? 1 : 0, format: plain },
      ],
    };
  }

  function groups(list, title, what, xLabel, absent) {
    const all = list || [];
    const of = (q) => all.map((g) => (g.ttft ? g.ttft[q] : null));
    const x = all.map((_, i) => i);
    const values = ['p50', 'p95', 'p99'].map(of);
    const name = (v) => (all[v] ? all[v].name + ' (n ' + plain(all[v].n) + ')' : '');
    return {
      title, what, x, xLabel, absent, xFormat: name, log: wantsLog(values), ranges: true, xScale: { range: () => [-0.6, x.length - 0.4] },
      xTick: (v) => (Number.isInteger(v) && all[v] ? short(all[v].name) : ''), xAxis: { incrs: [1, 2, 4, 8], space: 46, grid: { show: false } },
      series: ['p50', 'p95', 'p99'].map((q, i) => ({ label: q, values: values[i], color: ['c3', 'c2', 'c1'][i], kind: 'mark', mark: ['circle', 'square', 'triangle'][i], format: ms })),
    };
  }
  const short = (name) => (name.length > 12 ? name.slice(0, 11) + '…' : name);

  // ---- charts against the rate ----
  function rateCharts(grid) {
    const rates = [...new Set(data.curves.flatMap((c) => c.points.map((p) => p.offered_per_second)))].sort((a, b) => a - b);
    const many = data.curves.length > 1;
    const pick = (c, of) => rates.map((rate) => {
      const p = c.points.find((q) => q.offered_per_second === rate);
      const v = p && of(p);
      return v === undefined ? null : v;
    });
    const verdicts = (c) => rates.map((rate) => (c.points.find((q) => q.offered_per_second === rate) || {}).verdict);
    const colors = ['c1', 'c2', 'c3', 'c4', 'c5', 'c6'];
    // Curves are told apart by a letter at their points as well as by their colour.
    const per = (make) => data.curves.flatMap((c, i) => make(c, colors[i % colors.length], many ? c.label + ' ' : '')
      .map((s) => (many ? { ...s, letter: String.fromCharCode(65 + (i % 26)), place: i - (data.curves.length - 1) / 2 } : s)));
    const safe = (data.safe || []).map((s) => ({ ...s, color: 'pass', dash: [6, 3] }));
    const over = (spec) => ({ x: rates, xFormat: (v) => digits(v) + '/s', xLabel: 'offered requests/s', verticals: safe, xScale: { range: (u, low, high) => [low - 0.04 * (high - low || low), high + 0.04 * (high - low || low)] }, ...spec });
    [['ttft', 'Time to first token'], ['itl', 'Inter-token latency'], ['tpot', 'Time per output token'], ['e2e', 'End to end']].forEach(([key, title]) => {
      const series = per((c, color, name) => [
        { label: name + 'p99', values: pick(c, (p) => p[key] && p[key].p99), color, width: 2, verdicts: verdicts(c), format: ms, span: true },
        { label: name + 'p95', values: pick(c, (p) => p[key] && p[key].p95), color, dash: [6, 3], format: ms, span: true },
        { label: name + 'p50', values: pick(c, (p) => p[key] && p[key].p50), color, dash: [1, 3], format: ms, span: true },
      ]);
      const log = wantsLog(series.map((s) => s.values));
      add(grid, over({ title, what: 'p50, p95 and p99 by offered requests/s' + (log ? '; logarithmic.' : '.'), log, limits: limit(data.limits, key + '_p99', ms), series }));
    });
    add(grid, over({
      title: 'Offered against achieved', what: 'Completed requests/s by offered requests/s. Below the grey line the service falls behind.',
      series: [
        { label: 'all that was offered', values: rates, color: 'grey', dash: [4, 4], format: plain, span: true },
        ...per((c, color, name) => [{ label: name + 'achieved', values: pick(c, (p) => p.achieved_per_second), color, width: 2, verdicts: verdicts(c), format: plain, span: true }]),
      ],
    }));
    add(grid, over({
      title: 'Output tokens per second', what: 'Completion tokens per second by offered requests/s.', limits: limit(data.limits, 'output_tokens_per_second', plain),
      series: per((c, color, name) => [{ label: name + 'tokens/s', values: pick(c, (p) => p.output_tokens_per_second), color, width: 2, verdicts: verdicts(c), format: plain, span: true }]),
    }));
    add(grid, over({
      title: 'Goodput and errors', what: 'Share of the requests that met every SLO of their own, and that failed.', wide: true,
      series: per((c, color, name) => [
        { label: name + 'goodput', values: pick(c, (p) => p.goodput), color, width: 2, verdicts: verdicts(c), format: percent, span: true, top: 1 },
        { label: name + 'errors', values: pick(c, (p) => p.error_share), color, dash: [2, 2], width: 2, format: percent, span: true, top: 1 },
      ]),
    }));
  }

  // ---- the page ----
  const articles = [...document.querySelectorAll('article.run')];
  const pick = document.getElementById('pick');
  const built = new Set();
  function show(id, jump) {
    for (const a of articles) a.hidden = a.id !== id;
    if (pick) pick.value = id;
    if (!built.has(id)) {
      built.add(id);
      runCharts(id, data.runs[articles.findIndex((a) => a.id === id)]);
    }
    charts.forEach((c) => c.stale && c.draw());
    if (jump) {
      const title = document.getElementById(id + '-title');
      title.tabIndex = -1;
      title.focus();
    }
  }
  const redraw = () => charts.forEach((c) => c.draw());
  let pending;
  addEventListener('resize', () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => charts.forEach((c) => (c.u && c.u.width === c.plot.clientWidth) || c.draw()));
  });

  const button = document.getElementById('theme');
  const themes = ['auto', 'light', 'dark'];
  const stored = { // a page that was opened as a file may have no storage
    get: () => { try { return localStorage.getItem('safeqps-theme'); } catch { return null; } },
    set: (v) => { try { localStorage.setItem('safeqps-theme', v); } catch { /* the choice then lasts as long as the page */ } },
  };
  let theme = themes.includes(stored.get()) ? stored.get() : 'auto';
  function paint(name) {
    if (name === 'auto') delete root.dataset.theme;
    else root.dataset.theme = name;
  }
  function setTheme(name) {
    theme = name;
    stored.set(name);
    button.textContent = 'Theme: ' + name;
    paint(name);
    redraw();
  }
  button.hidden = false;
  button.textContent = 'Theme: ' + theme;
  paint(theme);
  button.addEventListener('click', () => setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('beforeprint', () => { paint('light'); redraw(); });
  addEventListener('afterprint', () => { paint(theme); redraw(); });

  const rated = document.getElementById('rate-charts');
  if (rated) rateCharts(rated);
  if (pick) pick.addEventListener('change', () => show(pick.value, false));
  document.querySelectorAll('a[data-run]').forEach((a) => a.addEventListener('click', (event) => {
    event.preventDefault();
    show(a.dataset.run, true);
  }));
  // Of several runs the page begins with the highest rate that passed.
  const passed = data.curves.flatMap((c) => c.points).filter((p) => p.verdict === 'PASS')
    .reduce((best, p) => (!best || p.offered_per_second > best.offered_per_second ? p : best), null);
  show(articles[passed ? data.runs.findIndex((r) => r.name === passed.run) : 0].id, false);
  root.dataset.ready = String(charts.length);
})();
