"use strict";
// Charts of one run: over time, the roofline, distributions.

function overTime() {
  const width = report.series.width_s;
  const shown = report.series.regions;
  const names = Object.keys(shown);
  if (!names.length) return null;
  const busy = !knowsMfu;
  const memory = names.some((name) => shown[name].mbu);
  const all = Object.values(shown).flatMap((s) => [s.bin[0], s.bin[s.bin.length - 1]]);
  const [first, last] = [Math.min(...all), Math.max(...all)];
  const at = (i) => (i - first + 0.5) * width;
  const lines = (bins, values) => {
    const out = [];
    bins.forEach((bin, k) => {
      if (k && bin !== bins[k - 1] + 1) out.push({ x: at(bins[k - 1] + 0.5), y: NaN });
      out.push({ x: at(bin), y: values[k] == null ? NaN : values[k] });
    });
    return out;
  };
  const make = () => {
    const datasets = [];
    for (const name of names) {
      const s = shown[name];
      const c = colour(seriesColour.get(name));
      const values = (busy ? s.lost.map((l) => (l ? 1 - l[4] : null)) : s.mbu || s.mfu).map((v) => (v == null || possible(v) ? v : null));
      datasets.push({ label: s.mbu && !busy ? name + " (MBU)" : name, data: lines(s.bin, values), borderColor: c, backgroundColor: c, borderWidth: 2,
        borderDash: name === "total" ? [5, 4] : [], pointRadius: s.bin.length > 60 ? 0 : s.bin.length > 1 ? 2 : 5, pointHitRadius: 8 });
      if (s.low && !busy && !s.mbu) {
        datasets.push({ label: name + " lowest", band: true, data: lines(s.bin, s.low), borderWidth: 0, pointRadius: 0, pointHitRadius: 0 });
        datasets.push({ label: name + " highest", band: true, data: lines(s.bin, s.high), borderWidth: 0, pointRadius: 0, pointHitRadius: 0, backgroundColor: faint(c), fill: "-1" });
      }
    }
    return { type: "line", data: { datasets }, options: {
      parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: timeAxis("time since the first window", at(last + 0.5)),
                  y: axis(busy ? "GPU busy" : memory ? "MFU, MBU" : "MFU", { beginAtZero: true, max: busy ? 1 : undefined, grace: busy ? 0 : "6%", ticks: percentTicks }) },
      plugins: { legend: { labels: { filter: (item, data) => !data.datasets[item.datasetIndex].band } },
        tooltip: { filter: (item) => Number.isFinite(item.parsed.y), callbacks: {
          title: (items) => items.length ? clock(items[0].parsed.x) : "", label: (item) => `${item.dataset.label} ${percent(item.parsed.y)}` } } } } };
  };
  const bands = Object.values(shown).some((s) => s.low);
  return section(busy ? "GPU busy over time" : memory ? "MFU and MBU over time" : "MFU over time",
    `Each point is ${duration(width)}${report.series.merged ? `: ${report.series.merged} windows are one, FLOP and time added up` : ""}.` +
      (memory && !busy ? " MBU where memory is the limit." : "") +
      (busy ? " MFU is unknown, so this is the share of time in which anything ran." : bands ? " The band is the lowest and the highest rank." : ""),
    chart("time", "MFU of each region over time", make).box);
}

function waterfallOverTime() {
  const names = Object.keys(report.series.regions).sort((a, b) => (a === "total") - (b === "total"));
  if (!names.length) return null;
  const width = report.series.width_s;
  const origin = Math.min(...Object.values(report.series.regions).map((s) => s.bin[0]));
  let region = names[0];
  const make = () => {
    const s = report.series.regions[region];
    if (!s) return null;
    const first = s.bin[0];
    const length = s.bin[s.bin.length - 1] - first + 1;
    const slot = new Array(length).fill(null);
    s.bin.forEach((bin, k) => (slot[bin - first] = k));
    const value = (key) => slot.map((k) => {
      if (k == null || s.lost[k] == null) return null;
      return key === "mfu" ? s.mfu[k] : s.lost[k][CLASSES.indexOf(key)];
    });
    const anyMfu = s.mfu.some((v) => v != null);
    const names_ = anyMfu ? LOST : TIME;
    // The first window at or after each round time has its label.
    const roundTime = (i, pixels) => {
      const step = timeStep(length * width, labelsIn(pixels - 60));
      const multiple = (k) => Math.floor((first + k - origin) * width / step + 1e-9);
      return (i === 0 ? (Math.abs((first - origin) * width / step - multiple(0)) < 1e-6 ? clock(multiple(0) * step) : null) : multiple(i) > multiple(i - 1) ? clock(multiple(i) * step) : null);
    };
    return { type: "bar", data: {
      labels: slot.map((_, i) => clock(+((first + i - origin) * width).toPrecision(6))),
      datasets: (anyMfu ? ["mfu", ...CLASSES] : CLASSES).map((k) => ({ label: names_[k], data: value(k), backgroundColor: colour(k), categoryPercentage: 1, barPercentage: length > 120 ? 1 : 0.92 })) },
      options: { interaction: { mode: "index", intersect: false },
        scales: { x: axis("window begins", { stacked: true, grid: { display: false }, ticks: { autoSkip: false, maxRotation: 0, callback(_, i) { return roundTime(i, this.chart.width); } } }),
                  y: axis("share of the region's time", { stacked: true, min: 0, max: 1, ticks: percentTicks }) },
        plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => `${item.dataset.label} ${percent(item.parsed.y)}` } } } } };
  };
  const c = chart("waterfall", "What each window's time went to", make);
  return el("section", { class: "panel" },
    el("div", { class: "head" }, el("h2", {}, "Waterfall over time"), choice("region", names, (v) => { region = v; c.redraw(); })), legend(knowsMfu ? ["mfu", ...CLASSES] : CLASSES, knowsMfu ? LOST : TIME), c.box);
}

// Names beside the points: colours alone do not say which is which.
const pointNames = { id: "pointNames", afterDatasetsDraw(chart) {
  const { ctx, chartArea } = chart;
  ctx.save();
  ctx.font = "12px " + Chart.defaults.font.family;
  ctx.textBaseline = "middle";
  chart.data.datasets.forEach((set, i) => {
    if (!set.named || !chart.isDatasetVisible(i)) return;
    const { x, y } = chart.getDatasetMeta(i).data[0].getProps(["x", "y"]);
    const size = ctx.measureText(set.label).width;
    ctx.fillStyle = colour("text");
    ctx.fillText(set.label, x + 10 + size > chartArea.right ? x - 10 - size : x + 10, y);
  });
  ctx.restore();
} };

function roofline() {
  const roofs = report.devices.filter((d) => d.peak_flop_per_s && d.peak_bytes_per_s);
  const dots = regions.filter((r) => r.flop > 0 && r.bytes > 0 && r.elapsed_s > 0 && !(r.region === "total" && named.length === 1));
  const without = regions.filter((r) => r.flop > 0 && !(r.bytes > 0) && r.region !== "total").map((r) => r.region);
  const title = "Roofline";
  if (!knowsMfu) return null;
  if (!roofs.length) return section(title, "The device's peaks are not both known: no roofs to draw.");
  const note = "FLOP per byte that the model must move, against FLOP/s reached, per GPU while the region ran." +
    (without.length ? ` ${without.join(", ")}: the bytes have no agreed count (training), so only the height is known: dotted.` : "");
  const make = () => {
    const xs = [...dots.map((r) => r.flop / r.bytes), ...roofs.flatMap((d) => [0.1, 2].map((f) => (f * d.peak_flop_per_s) / d.peak_bytes_per_s))];
    const reached = (r) => r.flop / (r.counted_s || r.elapsed_s);
    const ys = [...regions.filter((r) => r.flop > 0 && (dots.includes(r) || without.includes(r.region))).map(reached), ...roofs.map((d) => d.peak_flop_per_s)];
    const decade = (v, up) => 10 ** (up ? Math.ceil(Math.log10(v * 1.5)) : Math.floor(Math.log10(v / 1.5)));
    const [x0, x1, y0, y1] = [decade(Math.min(...xs), false), decade(Math.max(...xs), true), decade(Math.min(...ys), false), decade(Math.max(...ys), true)];
    const datasets = roofs.map((d, i) => {
      const ridge = d.peak_flop_per_s / d.peak_bytes_per_s;
      return { type: "line", label: `${roofs.length > 1 ? (d.name || "GPU") + ": " : ""}${scaled(d.peak_flop_per_s, "FLOP/s")} ${d.dtype}, ${scaled(d.peak_bytes_per_s, "B/s")}`, pointStyle: "line",
        data: [{ x: x0, y: x0 * d.peak_bytes_per_s }, { x: ridge, y: d.peak_flop_per_s }, { x: x1, y: d.peak_flop_per_s }],
        borderColor: colour("text"), borderWidth: 2, borderDash: i ? [6, 4] : [], pointRadius: 0, pointHitRadius: 0 };
    });
    for (const r of dots) datasets.push({ label: r.region, named: true, data: [{ x: r.flop / r.bytes, y: reached(r) }],
      backgroundColor: colour(seriesColour.get(r.region)), borderColor: colour("panel"), pointRadius: 7, pointHoverRadius: 8, pointStyle: r.region === "total" ? "rectRot" : "circle" });
    for (const name of without) {
      const r = regions.find((x) => x.region === name);
      datasets.push({ type: "line", label: name, pointStyle: "line", data: [{ x: x0, y: reached(r) }, { x: x1, y: reached(r) }], borderColor: colour(seriesColour.get(name)),
        borderWidth: 2, borderDash: [2, 4], pointRadius: 0 });
    }
    const decades = (unit) => ({ maxRotation: 0, callback: (v) => (Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? (unit ? scaled(v, unit) : v >= 1 ? count(v) : String(v)) : null) });
    return { type: "scatter", data: { datasets }, plugins: [pointNames], options: {
      scales: { x: axis("FLOP per byte", { type: "logarithmic", min: x0, max: x1, ticks: decades("") }),
                y: axis("FLOP/s", { type: "logarithmic", min: y0, max: y1, ticks: decades("FLOP/s") }) },
      plugins: { legend: { labels: { usePointStyle: true, boxWidth: 14, boxHeight: 8 } }, tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${threeDigits(item.parsed.x)} FLOP/B, ${scaled(item.parsed.y, "FLOP/s")}` } } } } };
  };
  return section(title, note, chart("roofline", "Roofline plot: FLOP per byte against FLOP/s", make).box);
}

// Vertical lines at the quantiles of a histogram.
const quantileLines = { id: "quantileLines", afterDatasetsDraw(chart) {
  const { ctx, chartArea, scales } = chart;
  ctx.save();
  ctx.font = "11px " + Chart.defaults.font.family;
  let row = 0;
  for (const { name, slot } of chart.config.options.quantiles) {
    const x = scales.x.getPixelForValue(slot);
    ctx.strokeStyle = ctx.fillStyle = colour("text");
    ctx.setLineDash([3, 3]);
    ctx.beginPath();
    ctx.moveTo(x, chartArea.top);
    ctx.lineTo(x, chartArea.bottom);
    ctx.stroke();
    const left = x + 34 > chartArea.right;
    ctx.textAlign = left ? "right" : "left";
    ctx.fillText(name, left ? x - 3 : x + 3, chartArea.top + 9 + 12 * row++);
  }
  ctx.restore();
} };

// Buckets end at powers of 2^(1/8): labelled are those in which a round time lies.
function roundDuration(edges, i) {
  const round = edges.length <= 16 ? [1, 1.5, 2, 3, 5, 7] : edges.length <= 40 ? [1, 2, 5] : edges.length <= 80 ? [1] : [];
  const [low, high] = [2 ** ((edges[i] - 1) / 8), 2 ** (edges[i] / 8)];
  const decade = 10 ** Math.floor(Math.log10(high));
  const met = [...round.map((v) => v * decade / 10), ...round.map((v) => v * decade)].find((v) => v > low && v <= high * (1 + 1e-9));
  return met == null ? null : duration(+met.toPrecision(2));
}

function distribution(r) {
  const l = r.latency;
  const make = () => {
    // Eight buckets to an octave; empty ones are not in the file.
    const edges = [];
    const index = (s) => Math.round(Math.log2(s) * 8);
    const counts = new Map();
    for (const [upper, n] of l.histogram) counts.set(index(upper), (counts.get(index(upper)) || 0) + n);
    let [low, high] = [Math.min(...counts.keys()) - 1, Math.max(...counts.keys()) + 1];
    while (high - low < 11) { --low; ++high; }
    for (let i = low; i <= high; ++i) edges.push(i);
    const slotOf = (s) => { const e = l.histogram.find(([upper]) => upper >= s) || l.histogram[l.histogram.length - 1]; return index(e[0]) - low; };
    return { type: "bar", plugins: [quantileLines], data: { labels: edges.map((i) => duration(2 ** (i / 8))),
      datasets: [{ label: "instances", data: edges.map((i) => counts.get(i) || 0), backgroundColor: colour(seriesColour.get(r.region)), categoryPercentage: 1, barPercentage: 0.94 }] },
      options: { quantiles: [["p50", l.p50_s], ["p90", l.p90_s], ["p99", l.p99_s]].map(([name, s]) => ({ name, slot: slotOf(s) })),
        scales: { x: axis("took", { grid: { display: false }, ticks: { autoSkip: false, maxRotation: 0, callback: (_, i) => roundDuration(edges, i) } }), y: axis("instances", { beginAtZero: true, grace: "20%", ticks: { precision: 0, maxTicksLimit: 5 } }) },
        plugins: { legend: { display: false } } } };
  };
  const q = (key) => [key.replace(/_s$/, "") + " ", figure(`${r.region}.latency.${key}`, l[key], duration(l[key]), "b")];
  return el("div", {}, el("div", {}, el("b", {}, r.region), el("span", { class: "dim small" }, ` ${report.instance_names[r.region]}, ${count(l.count)} instances`)),
    el("div", { class: "numbers" }, ["p50_s", "p90_s", "p99_s", "max_s"].map((k) => el("span", {}, q(k)))),
    r.inter_token_s && r.inter_token_s.count > l.count ? el("div", { class: "numbers" }, el("span", {}, "between tokens"),
      ["p50", "p90", "p99", "max"].map((k) => el("span", {}, k + " ", figure(`${r.region}.inter_token_s.${k}`, r.inter_token_s[k], duration(r.inter_token_s[k]), "b")))) : null,
    chart("latency-" + regions.indexOf(r), `Distribution of ${report.instance_names[r.region]} of ${r.region}`, make).box);
}

function distributions() {
  const shown = named.filter((r) => r.latency && r.latency.histogram.length).slice(0, 6);
  if (!shown.length) return null;
  const note = job.processes > 1 ? "Instances of all ranks together; quantiles come from the histogram's buckets: at most 9 % above the truth, never below." : null;
  return el("section", { class: shown.length > 1 || knowsMfu ? "panel wide" : "panel" }, el("h2", {}, "Time of single instances"), note && el("p", { class: "dim small" }, note),
    el("div", { class: "small-charts" }, shown.map(distribution)));
}
