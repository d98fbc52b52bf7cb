"use strict";
// Tables of one run.

// What users of a server wait for, by the size of the batch that they are in.
function batches() {
  const rows = named.flatMap((r) => r.by_batch.map((b, i) => ({ r, b, i })));
  if (!rows.length) return null;
  const key = ({ r, i }, what) => `${r.region}.by_batch.${i}.${what}`;
  const column = (title, what, of, text) => ({ title, of: (row) => figure(key(row, what), of(row), text(of(row))), by: of });
  const rate = ({ b }) => (b.tokens && b.elapsed_s > 0 ? b.tokens / b.elapsed_s : null);
  const anyOf = (of, wanted) => (rows.some((row) => of(row) != null) ? [wanted] : []);
  const columns = [
    { title: "region", text: true, of: ({ r }) => r.region, by: ({ r }) => r.region },
    { title: "batch", of: ({ b }) => `${count(b.batch_min)}${b.batch_max > b.batch_min ? "–" + count(b.batch_max) : ""} ${b.batch_max === 1 ? b.unit.slice(0, -1) : b.unit}`, by: ({ b }) => b.batch_min },
    column("instances", "instances", ({ b }) => b.instances, count),
    ...["p50", "p90", "p99", "max"].map((q) => column(q, "latency_s." + q, ({ b }) => b.latency_s && b.latency_s[q], duration)),
    ...anyOf(({ b }) => b.mfu, column("MFU", "mfu", ({ b }) => b.mfu, percent)),
    ...anyOf(({ b }) => b.mbu, column("MBU", "mbu", ({ b }) => b.mbu, percent)),
    ...anyOf(rate, { title: "tokens", of: (row) => scaled(rate(row), "token/s"), by: rate }),
    { title: "share of time", of: ({ r, b }) => percent(b.elapsed_s / r.elapsed_s), by: ({ r, b }) => b.elapsed_s / r.elapsed_s },
  ];
  const gaps = named.filter((r) => r.prefill_to_decode_s);
  const gap = (r) => el("p", {}, `Gap from a prefill to the next ${r.region}: `,
    ["p50", "p99", "max"].flatMap((q, i) => [i ? ", " : "", q + " ", figure(`${r.region}.prefill_to_decode_s.${q}`, r.prefill_to_decode_s[q], duration(r.prefill_to_decode_s[q]), "b")]),
    " (", figure(`${r.region}.after_prefill`, r.after_prefill, count(r.after_prefill), "b"), ` of ${count(r.instances)} instances came after a prefill).`);
  return section("Latency by batch", "Decode: time per pass, which is the inter-token latency. Prefill and mixed: time per pass.",
    table(columns, rows, { label: "latency by batch" }), gaps.map(gap));
}

const inTimeline = (r, s) => (report.timelines || []).some((t) => t.region === r.region && t.slowest.nth === s.nth && Math.abs(t.slowest.elapsed_s - s.elapsed_s) < 1e-3 * s.elapsed_s);

function slowest() {
  const rows = named.flatMap((r) => r.slowest.map((s, i) => ({ r, s, i })));
  if (!rows.length) return null;
  const several = report.rows.length > regions.length;
  const known = rows.some(({ s }) => s.lost_to != null);
  const columns = [
    { title: "region", text: true, of: ({ r }) => r.region, by: ({ r }) => r.region },
    ...(several ? [{ title: "where", text: true, of: ({ s }) => s.where, by: ({ s }) => s.where }] : []),
    { title: "nth", of: ({ r, s }) => (inTimeline(r, s) ? el("a", { href: "#timeline" }, "#" + s.nth) : "#" + s.nth), by: ({ s }) => s.nth },
    { title: "began", of: ({ s }) => clock((s.t0_ns - job.t0_ns) / 1e9), by: ({ s }) => s.t0_ns },
    { title: "took", of: ({ r, s, i }) => figure(`${r.region}.slowest.${i}.elapsed_s`, s.elapsed_s, duration(s.elapsed_s)), by: ({ s }) => s.elapsed_s },
    { title: "median", of: ({ r }) => duration(r.latency && r.latency.p50_s), by: ({ r }) => r.latency && r.latency.p50_s },
    ...(known ? [{ title: "lost most to", text: true, of: ({ s }) => (s.lost_to ? TIME[s.lost_to] : "–"), by: ({ s }) => s.lost_to || "" },
      { title: "more than the others", of: ({ s }) => duration(s.excess_s), by: ({ s }) => s.excess_s },
      { title: "where its time went", text: true, class: "times", of: ({ r, s }) => stackedBar(CLASSES.map((c) => [c, s.time_s[c] / s.elapsed_s]), TIME, `${r.region} ${s.nth}`) }] : []),
  ];
  return section("Slowest instances", "Over a tenth longer than the median of their region on their device; numbered from 0 in the order in which they ended.",
    table(columns, rows, { label: "slowest instances" }));
}

// What the program did while nothing ran on the GPU.
function idleCauses() {
  const rows = regions.flatMap((r) => (r.idle_by || []).map((c, i) => ({ r, c, i })));
  if (!rows.length) return null;
  const share = ({ r, c }) => (r.elapsed_s > 0 ? c.s / r.elapsed_s : null);
  return section("What the GPU waited for", "Idle time by what the program did meanwhile: a function and the line of the program that called it, as read from its stack. launching: gaps too short to look into, in which the host prepared the next launch.",
    table([
      { title: "region", text: true, of: ({ r }) => r.region, by: ({ r }) => r.region },
      { title: "cause", text: true, of: ({ c }) => c.cause || "unknown", by: ({ c }) => c.cause || "" },
      { title: "where", text: true, of: ({ c }) => c.where || "–", by: ({ c }) => c.where || "" },
      { title: "thread", text: true, of: ({ c }) => c.thread || "–", by: ({ c }) => c.thread || "" },
      { title: "idle", of: ({ r, c, i }) => figure(`${r.region}.idle_by.${i}.s`, c.s, duration(c.s)), by: ({ c }) => c.s },
      { title: "of elapsed", of: (row) => percent(share(row)), by: share },
    ], rows, { label: "what the GPU waited for" }));
}

// Components of the model (attention, mlp, logits, ...) in the windows' order: their time and the FLOP that ran.
function components() {
  const names = regions.filter((r) => r.components && r.components.length).map((r) => r.region);
  if (!names.length) return null;
  const place = el("div");
  const show = (name) => {
    const r = regions.find((x) => x.region === name);
    const rows = r.components.map((c, index) => ({ c, index }));
    const share = ({ c }) => (r.elapsed_s > 0 ? c.time_s / r.elapsed_s : null);
    const f = (title, key, text) => ({ title, of: ({ c, index }) => figure(`${name}.components.${index}.${key}`, c[key] ?? null, text(c[key] ?? null)), by: ({ c }) => c[key] ?? null });
    const label = ({ c }) => (c.pass ? `${c.name} ${c.pass}` : c.name);
    const lost = ({ c }) => (c.of_peak != null && c.of_peak <= 1 && r.elapsed_s > 0 ? c.time_s * (1 - c.of_peak) / r.elapsed_s : null);
    const ofLoss = (row) => (lost(row) == null ? null : lost(row) / r.lost.matmul);
    place.replaceChildren(table([
      { title: "component", text: true, of: label, by: label },
      { title: "of elapsed", of: (row) => timeShare(share(row)), by: share },
      { title: "loses", of: (row) => percent(lost(row)), by: lost },
      ...(r.lost && r.lost.matmul > 0 ? [{ title: "of matmul loss", of: (row) => percent(ofLoss(row)), by: ofLoss }] : []),
      f("reached", "flop_per_s", (v) => scaled(v, "FLOP/s")), f("of peak", "of_peak", percent),
      { title: "bound", text: true, of: ({ c }) => c.bound || "–", by: ({ c }) => c.bound || "" },
      f("calls", "calls", count), { ...f("shapes", "shapes", count), of: (row) => (row.c.shapes ? f("shapes", "shapes", count).of(row) : "–") }, f("time", "time_s", duration),
    ], rows, { label: "components of " + name }));
  };
  show(names[0]);
  return el("section", { class: "panel", id: "components" }, el("div", { class: "head" }, el("h2", {}, "Components"), choice("region", names, show)),
    el("p", { class: "dim small" }, "FLOP that ran (not the model's), over the time of the kernels that did them. Loses: of the elapsed time, what the peak rate would save. Bound: by the roofline, each operand moved once; of attention kernels neither that nor the shape is seen. fwd and bwd: forward and backward pass; dgrad and wgrad: the backward pass for inputs and for weights."), place);
}

function regionTable() {
  const f = (key, of, text) => (r) => figure(`${r.region}.${key}`, of(r), text(of(r)));
  const column = (title, key, of, text) => ({ title, of: f(key, of, text), by: of });
  const anyOf = (of, ...wanted) => (regions.some(of) ? wanted : []);
  const columns = [
    { title: "region", text: true, of: (r) => r.region, by: (r) => r.region },
    { title: "MFU", of: (r) => figure(`${r.region}.${mfuKey(r)}`, r[mfuKey(r)], mfuText(r)), by: (r) => r[mfuKey(r)] }, ...anyOf((r) => r.mfu_busy != null, column("busy MFU", "mfu_busy", (r) => r.mfu_busy, percent)),
    ...anyOf((r) => r.hfu > r.mfu * 1.0005, column("HFU", "hfu", (r) => r.hfu, percent)),
    ...anyOf((r) => r.mbu != null, column("MBU", "mbu", (r) => r.mbu, percent)),
    ...CLASSES.map((c) => column((knowsMfu && c === "matmul" ? "matmul loss" : c === "memcpy" ? "copies" : c), `${knowsMfu ? "lost" : "time_s"}.${c}`, (r) => (knowsMfu ? r.lost : r.time_s)[c], knowsMfu ? percent : duration)),
    // Of total it would add steps and passes.
    { title: "instances", of: (r) => (r.region === "total" ? "–" : figure(`${r.region}.instances`, r.instances, count(r.instances))), by: (r) => (r.region === "total" ? null : r.instances) },
    column("each", "each_s", (r) => r.each_s, duration),
    column("elapsed", "elapsed_s", (r) => r.elapsed_s, duration), column("kernels", "kernels", (r) => r.kernels, count), column("launches", "launches", (r) => r.launches, count),
    ...anyOf((r) => r.clock_ratio != null, column("clock", "clock_ratio", (r) => r.clock_ratio, clockPercent)),
  ];
  return section("Regions", "Times of several devices are added up. The five classes are exclusive: a moment belongs to the first one that runs." +
    (regions.some((r) => r.clock_ratio != null) ? " Clock: the SM clock beside the one that the peak stands for; above 100 % the GPU boosts." : ""),
    table(columns, regions, { label: "regions" }));
}

// What the matmuls reached, where their sizes were seen: their own FLOP, which may be more than the model's.
function executedLine(r) {
  const e = r.executed;
  const peak = r.flop_at_peak && r.counted_s ? r.flop_at_peak / r.counted_s : null;
  if (seenOf(r) === 0) return el("p", { class: "small" }, "Of no matmul the call, and so the size, was seen.");
  if (!e || !(e.flop > 0) || !(e.covered_s > 0)) return null;
  return el("p", { class: "small" }, "Matmuls whose sizes were seen reached ", el("b", {}, scaled(e.flop / e.covered_s, "FLOP/s")),
    peak ? [", ", el("b", {}, percent(e.flop / e.covered_s / peak)), " of the peak"] : "", `; they are ${percent(e.covered_s / e.matmul_s)} of the matmul time.`);
}
const peakShare = (r, k) => (k.flop != null && k.sum_s > 0 && r.flop_at_peak ? k.flop / k.sum_s / (r.flop_at_peak / r.counted_s) : null);

function kernels() {
  const names = regions.filter((r) => r.top_kernels.length).map((r) => r.region);
  if (!names.length) return null;
  const place = el("div");
  const show = (name) => {
    const r = regions.find((x) => x.region === name);
    const share = (k) => (r.kernel_sum_s > 0 ? k.sum_s / r.kernel_sum_s : null);
    place.replaceChildren(table([
      { title: "kernel", text: true, class: "kernel", of: (k) => el("span", { title: k.name }, el("span", { class: "swatch", style: { background: `var(--${CLASS_OF[k.class]})` } }), shortKernel(k.name)), by: (k) => k.name },
      { title: "class", text: true, of: (k) => k.class, by: (k) => k.class },
      { title: "of elapsed", of: (k) => timeShare(r.elapsed_s > 0 ? k.sum_s / r.elapsed_s : null), by: (k) => k.sum_s },
      { title: "count", of: (k) => count(k.count), by: (k) => k.count },
      { title: "time", of: (k) => duration(k.sum_s), by: (k) => k.sum_s },
      { title: "each", of: (k) => duration(k.sum_s / k.count), by: (k) => k.sum_s / k.count },
      { title: "of kernel time", of: (k) => figure(`${name}.kernel.${k.name}`, k.sum_s, percent(share(k))), by: share },
      ...(r.top_kernels.some((k) => k.flop != null) ? [{ title: "of peak", of: (k) => percent(peakShare(r, k)), by: (k) => peakShare(r, k) }] : []),
    ], r.top_kernels, { label: "kernels of " + name }), ...[executedLine(r)].filter(Boolean));
  };
  show(names[0]);
  return el("section", { class: "panel" }, el("div", { class: "head" }, el("h2", {}, "Top kernels"), choice("region", names, show)), place);
}

function ranks() {
  if (report.rows.length <= regions.length) return null;
  const names = [...new Set(report.rows.map((row) => row.region))].sort((a, b) => (a === "total") - (b === "total"));
  const place = el("div");
  const by = (title, key, text, more = {}) => ({ title, of: (row) => (text ? text(row[key]) : row[key]), by: (row) => row[key], ...more });
  const mfu = by("MFU", "mfu", percent);
  const p50 = by("p50", "p50_s", duration);
  const known = (column, key) => (report.rows.some((row) => row[key] != null && row[key] !== "") ? [column] : []);
  const columns = [{ title: "rank", text: true, of: (row) => el("span", {}, row.label, row.odd ? [" ", el("span", { class: "badge warn", title: "its MFU or median is more than five deviations off the others'" }, "differs")] : []), by: (row) => row.label }, ...known(by("host", "host", null, { text: true }), "host"), ...known(mfu, "mfu"), ...known(by("MBU", "mbu", percent), "mbu"),
    by("instances", "instances", count), p50, by("p99", "p99_s", duration), by("idle", "idle", percent), by("comm", "comm", percent), by("elapsed", "elapsed_s", duration),
    ...known(by("clock", "clock_ratio", clockPercent), "clock_ratio")];
  const show = (name) => place.replaceChildren(table(columns, report.rows.filter((row) => row.region === name), knowsMfu ? { label: "ranks", sort: mfu } : { label: "ranks", sort: p50, descending: true }));
  show(names[0]);
  return el("section", { class: "panel", id: "ranks" }, el("div", { class: "head" }, el("h2", {}, "Ranks and devices"), choice("region", names, show)),
    report.rows_left_out ? el("p", { class: "dim small" }, `${report.rows_left_out} further rows are in --json.`) : null, place);
}

function divided() {
  const peaks = table([
    { title: "GPU", text: true, of: (d) => d.name || "unnamed" }, { title: "devices", of: (d) => count(d.count) },
    { title: "dtype", text: true, of: (d) => d.dtype + (d.sparse ? " 2:4 sparse" : "") }, { title: "dtype from", text: true, of: (d) => d.dtype_source },
    { title: "peak", of: (d) => figure(`peak.${d.name}`, d.peak_flop_per_s, scaled(d.peak_flop_per_s, "FLOP/s")) }, { title: "bandwidth", of: (d) => scaled(d.peak_bytes_per_s, "B/s") },
    { title: "source", text: true, class: "long", of: (d) => d.peak_source },
  ], report.devices, { label: "peaks" });
  const quotients = table([
    { title: "region", text: true, of: (r) => r.region },
    { title: "FLOP", of: (r) => figure(`${r.region}.flop`, r.flop, scaled(r.flop, "FLOP")) },
    { title: "÷ peak × elapsed", of: (r) => figure(`${r.region}.flop_at_peak`, r.flop_at_peak, scaled(r.flop_at_peak, "FLOP")) },
    { title: "over", of: (r) => figure(`${r.region}.counted_s`, r.counted_s, duration(r.counted_s)) },
    { title: "= MFU", of: (r) => percent(r.mfu) },
    { title: "bytes", of: (r) => figure(`${r.region}.bytes`, r.bytes, scaled(r.bytes, "B")) },
    { title: "÷ bandwidth × elapsed", of: (r) => scaled(r.bytes_at_peak, "B") },
    { title: "= MBU", of: (r) => percent(r.mbu) },
    { title: "named by", text: true, of: (r) => (r.named_by === "detector" ? "inferred" : r.named_by || "–") },
  ], regions, { label: "quotients" });
  const note = knowsMfu ? `MFU = model FLOP ÷ (peak × elapsed). FLOP counted by the convention ${report.conventions.join(", ")}.` : "Nothing yet: without FLOP there is no MFU. These are the peaks that they would be divided by.";
  return section("How MFU is computed", note, peaks, el("p", {}), knowsMfu ? quotients : null);
}
