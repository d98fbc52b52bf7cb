"use strict";
// What a run is made of: its regions, and the parts of their time; what is worth doing about them.

const job = report.job || { regions: [] };
// Those of a model's layers (MFU_PARTS=layers) are one strip for each pass, and not among the others.
const LAYER = /^(?:layer (\d+)|outside of layers)(?: (.+))?$/;
const regions = job.regions.filter((r) => !LAYER.test(r.region));
const named = regions.filter((r) => r.region !== "total");
const total = regions.find((r) => r.region === "total");
const knowsMfu = regions.some((r) => r.mfu != null);
const seriesColour = new Map(regions.map((r, i) => [r.region, r.region === "total" ? "dim" : "series-" + (i % 8)]));

// A region's parts: MFU and what was lost, or shares of time where MFU is unknown.
function partsOf(r) {
  if (r.busy_s == null) return null;
  if (r.mfu != null && r.lost.idle != null) return { names: LOST, parts: [["mfu", r.mfu], ...CLASSES.map((c) => [c, r.lost[c]])] };
  if (!(r.elapsed_s > 0)) return null;
  return { names: TIME, parts: CLASSES.map((c) => [c, r.time_s[c] / r.elapsed_s]) };
}

// The region that a reader asks about first: the longest one with MFU.
const main = named.find((r) => r.mfu != null && possible(r.mfu)) || named[0] || total;
const peakNames = () => [...new Set(report.devices.filter((d) => d.peak_flop_per_s).map((d) => `${d.dtype} ${d.sparse ? "2:4 sparse" : "dense"} ${scaled(d.peak_flop_per_s, "FLOP/s")}`))];
// MFU, or the bound where it is known from below alone: which field, and how it is written.
const isBound = (r) => r.mfu == null && r.mfu_lower != null;
const mfuKey = (r) => (isBound(r) ? "mfu_lower" : "mfu");
const mfuText = (r) => (isBound(r) ? atLeast(r.mfu_lower) : percent(r.mfu));
// The share of the matmul time whose FLOP are known; null: calls were not watched, or no matmul ran.
const seenOf = (r) => (r.executed && r.executed.matmul_s > 0 ? Math.min(1, r.executed.covered_s / r.executed.matmul_s) : null);
const ENOUGH = 0.9; // from here on HFU is of the products that ran
const hfuIsExecuted = (r) => r.hfu != null && r.executed != null && r.executed.ideal_s > 0 && seenOf(r) >= ENOUGH;
const byMemory = (r) => r.bound === "memory" && r.mbu != null;

// How long each layer takes: a strip for each pass.
function layerStrips() {
  const passes = new Map();
  for (const r of job.regions) {
    const [, number, pass] = LAYER.exec(r.region) || [];
    if (number == null || !r.instances) continue;
    const each = r.latency && r.latency.count ? r.latency.p50_s : r.each_s;
    passes.set(pass || "forward", [...(passes.get(pass || "forward") || []), { r, number: +number, each }]);
  }
  if (!passes.size) return null;
  const order = ["forward", "backward", "prefill", "mixed", "decode"];
  const strips = [...passes].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)).map(([pass, layers]) => {
    const byTime = [...layers].sort((a, b) => a.each - b.each);
    const median = byTime[Math.floor(byTime.length / 2)].each, slowest = byTime[byTime.length - 1];
    const words = `${pass}: ${layers.length} layers, each ${duration(median)}; slowest is layer ${slowest.number}, ${duration(slowest.each)}`;
    return [el("p", { class: "words" }, sentence(words), median > 0 ? ` (${threeDigits(slowest.each / median)} of the median)` : ""),
      el("div", { class: "layers", role: "img", "aria-label": words }, layers.sort((a, b) => a.number - b.number).map(({ r, number, each }) =>
        el("div", { "data-layer": r.region, title: `layer ${number}: ${duration(each)}, HFU ${percent(r.hfu)}`,
          style: { height: `${slowest.each > 0 ? 100 * each / slowest.each : 0}%`, background: each > 1.2 * median ? "var(--series-3)" : "var(--series-2)" } })))];
  });
  return section("Layers", "A bar for each layer, first to last: the median time of its instances. From the begin of a layer to that of the next one.", ...strips.flat());
}

function whatToDo() {
  if (!job.opportunities.length) return null;
  const rows = job.opportunities.slice(0, 5);
  return el("section", { class: "panel", id: "opportunities" }, el("h2", {}, "Opportunities"),
    el("p", { class: "dim small" }, "If that time went away and nothing else changed, the region would run so many times as fast: an upper bound."),
    el("ol", { class: "todo" }, rows.map((o) => el("li", {},
      el("span", { class: "swatch", style: { background: `var(--${o.class})` } }), el("b", {}, o.region), " ", sentence(o.what),
      o.gain ? el("span", { class: "gain" }, ` up to ${threeDigits(o.gain)}×`) : null,
      el("div", { class: "dim small" }, o.advice)))));
}

// Which components the loss in matmuls is, the largest three: time x (1 - share of the peak reached). They lie in the
// bar of that loss, which begins at `left`, one after the other from its right end.
function matmulLosses(r, whole, left) {
  let at = left + whole;
  return (r.components || []).filter((c) => c.of_peak != null && c.of_peak <= 1)
    .map((c) => ({ c, lost: c.time_s * (1 - c.of_peak) / r.elapsed_s }))
    .filter(({ lost }) => lost >= 0.0005 && lost >= 0.05 * whole).sort((a, b) => b.lost - a.lost).slice(0, 3)
    .map(({ c, lost }) => {
      at = Math.max(left, at - lost);
      return el("div", { class: "step part", title: `${percent(c.of_peak)} of the peak` },
        el("span", { class: "dim" }, `of it ${c.name}${c.pass ? " " + c.pass : ""}`),
        el("div", { class: "track" }, el("div", { class: "fill", style: { left: `${100 * at}%`, width: `${100 * Math.min(lost, whole)}%`, background: "var(--matmul)", opacity: "0.6" } })), el("span", { class: "dim" }, percent(lost)));
    });
}

// The whole life of the job: 100 % of its GPUs' time down to its MFU. Where there is none, to the time in steps.
function lifeOfTheJob() {
  const lost = Object.entries(job.lost_gpu_hours || {}).filter(([k, v]) => v > 0 && k !== "away").sort((a, b) => b[1] - a[1]);
  if (!job.life || !(job.gpu_hours > 0)) return null;
  const row = (name, left, width, background, kind = "") => el("div", { class: "step" + kind }, el("span", {}, name),
    el("div", { class: "track" }, el("div", { class: "fill", style: { left: `${100 * left}%`, width: `${100 * width}%`, background } })), el("b", {}, percent(width)));
  let left = 1;
  const rows = lost.map(([key, hours]) => {
    left -= hours / job.gpu_hours;
    return row("− " + key.replace("_", " "), Math.max(0, left), hours / job.gpu_hours, "var(--idle)");
  });
  if (job.mfu_job != null) rows.push(row("− in steps", Math.min(job.mfu_job, left), Math.max(0, left - job.mfu_job), "var(--other)"));
  rows.push(row(job.mfu_job != null ? "= MFU" : "= in steps", 0, Math.min(1, job.mfu_job != null ? job.mfu_job : left), "var(--mfu)", " total"));
  return el("section", { class: "panel", id: "life" }, el("h2", {}, `The life of the job: ${count(job.attempts.length)} ${job.attempts.length === 1 ? "start" : "starts"}`),
    el("p", { class: "words" }, sentence(job.life) + "."), el("div", { class: "steps", role: "img", "aria-label": "the time of the job's GPUs" }, rows));
}

// 100 % of the time, step by step down to what the model needed.
function stepsDown() {
  const r = main;
  const p = r && partsOf(r);
  if (!p || r.mfu == null || p.names !== LOST) return null;
  const share = Object.fromEntries(p.parts);
  const rows = [el("div", { class: "step" }, el("span", {}, "elapsed"), el("div", { class: "track" }, el("div", { class: "fill", style: { left: "0", width: "100%", background: "var(--line)" } })), el("b", {}, "100 %"))];
  let left = 1;
  for (const key of ["idle", "memcpy", "comm", "other", "matmul"]) {
    const lost = Math.max(0, share[key]);
    if (lost < 0.0005) continue;
    left -= lost;
    rows.push(el("div", { class: "step", title: MEANING[key] }, el("span", {}, "− " + LOST[key]),
      el("div", { class: "track" }, el("div", { class: "fill", style: { left: `${100 * Math.max(0, left)}%`, width: `${100 * lost}%`, background: `var(--${key})` } })), el("b", {}, percent(lost))));
    if (key === "matmul") rows.push(...matmulLosses(r, lost, Math.max(0, left)));
  }
  rows.push(el("div", { class: "step total" }, el("span", {}, "= MFU"),
    el("div", { class: "track" }, el("div", { class: "fill", style: { left: "0", width: `${Math.min(100, 100 * r.mfu)}%`, background: "var(--mfu)" } })), el("b", {}, percent(r.mfu))));
  return el("section", { class: "panel" }, el("h2", {}, `From 100 % to MFU: ${r.region}`), el("div", { class: "steps", role: "img", "aria-label": "waterfall of " + r.region }, rows));
}
