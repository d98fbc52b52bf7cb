"use strict";
// Names of regions, kernels, hosts and files are foreign text: they reach the page as text nodes only.

const report = JSON.parse(document.getElementById("data").textContent);
const CLASSES = ["matmul", "other", "comm", "memcpy", "idle"];
const LOST = { mfu: "MFU", matmul: "matmul loss", other: "other kernels", comm: "exposed communication", memcpy: "copies", idle: "idle" };
const TIME = { ...LOST, matmul: "matmul" };
const MEANING = {
  mfu: "what the model needed, at the peak", matmul: "matmul kernels ran, but slower than the peak",
  other: "only compute kernels other than matmuls ran", comm: "only communication kernels ran", memcpy: "only copies ran",
  idle: "nothing ran on the GPU", range: "a range that the program opened", launch: "a call of the driver or the runtime",
};

// --- text -----------------------------------------------------------------------------------------------------------

function threeDigits(v) {
  const size = Math.abs(v);
  const whole = Math.abs(v - Math.round(v)) <= 1e-4 * size;
  return v.toFixed(size >= 99.95 || whole ? 0 : size >= 9.995 ? 1 : 2);
}
// A ratio that can be true is 0..1, up to rounding; the region's remark says what is wrong with another one.
const possible = (v) => v >= -1e-9 && v <= 1.001;
const percent = (v) => (v == null ? "–" : possible(v) ? (Math.min(1, Math.max(0, v)) * 100).toFixed(1) + " %" : "suspect");
// Kernels that run side by side take more time than there is.
const timeShare = (v) => (v > 1 ? "> 100 %" : percent(v));
// A clock may be above the one that the peak stands for.
const clockPercent = (v) => (v == null ? "–" : (v * 100).toFixed(1) + " %");
// A bound is never rounded up, a share of what is seen neither.
const atLeast = (v) => (v == null || !possible(v) ? percent(v) : `≥ ${v >= 0.001 || !(v > 0) ? (Math.floor(v * 1000) / 10).toFixed(1) : (Math.floor(v * 10000) / 100).toFixed(2)} %`);
const wholePercent = (v) => (v == null ? "–" : `${Math.floor(v * 100 + 1e-9)} %`);
function points(v) {
  if (v == null) return "–";
  const p = Math.round(v * 1000) / 10;
  return p === 0 ? "0.0" : (p > 0 ? "+" : "−") + Math.abs(p).toFixed(1);
}
function duration(s) {
  if (s == null) return "–";
  if (Math.abs(s) < 5e-12) return "0 s";
  if (s >= 172800) return threeDigits(s / 86400) + " days";
  if (s >= 7200) return threeDigits(s / 3600) + " h";
  if (s >= 120) return threeDigits(s / 60) + " min";
  if (s >= 0.9995) return threeDigits(s) + " s";
  if (s >= 0.9995e-3) return threeDigits(s * 1e3) + " ms";
  if (s >= 0.9995e-6) return threeDigits(s * 1e6) + " µs";
  return threeDigits(s * 1e9) + " ns";
}
function scaled(v, unit) {
  if (v == null) return "–";
  const prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
  let i = 0;
  while (Math.abs(v) >= 999.5 && i + 1 < prefixes.length) { v /= 1000; ++i; }
  return threeDigits(v) + " " + prefixes[i] + unit;
}
// A sentence from elsewhere: no number is torn from its unit at a line's end.
const sentence = (text) => text.replace(/(\d) (?=%|(?:[nµm]?s|min|h|days)\b)/g, "$1\u00a0");
const count = (n) => (n == null ? "–" : n.toLocaleString("en-US"));
function clock(s) {
  const sign = s < 0 ? "-" : "";
  const t = Math.abs(s);
  if (t < 60) return sign + +t.toPrecision(3) + " s";
  const pad = (n) => String(Math.floor(n)).padStart(2, "0");
  return t < 3600 ? `${sign}${Math.floor(t / 60)}:${pad(t % 60)}` : `${sign}${Math.floor(t / 3600)}:${pad((t % 3600) / 60)}:${pad(t % 60)}`;
}
// The step of a time axis that is `s` seconds long, with at most `most` labels on it.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
function timeStep(s, most = 8) {
  const decimal = 10 ** Math.floor(Math.log10(s / most || 1e-9));
  const below = [1, 2, 5, 10].map((v) => +(v * decimal).toPrecision(3)).find((step) => s / step <= most);
  if (below < 1) return below;
  return TIME_STEPS.find((step) => s / step <= most) || 86400 * Math.ceil(s / most / 86400);
}
const LABEL_PX = 84;  // that a label of a time axis may take
const labelsIn = (width) => Math.max(2, Math.floor(width / LABEL_PX));
// A time axis from 0 to `s` seconds: labels at round times only.
const timeAxis = (title, s) => axis(title, { type: "linear", min: 0, max: s, ticks: { callback: (v) => clock(v), maxRotation: 0, autoSkip: false },
  afterBuildTicks: (scale) => {
    const step = timeStep(s, labelsIn(scale.chart.width - 60));
    scale.ticks = Array.from({ length: Math.floor(s / step + 1e-9) + 1 }, (_, i) => ({ value: +(i * step).toPrecision(12) }));
  } });
// Which class of the waterfall the time of a kernel's class is.
const CLASS_OF = { gemm: "matmul", attention: "matmul", comm: "comm", other: "other" };
// A kernel's name without template arguments and parameters, as far as it says which one it is.
function shortKernel(name) {
  let depth = 0, short = "";
  for (const c of name.replace(/^void /, "")) {
    if (c === "<" || c === "(") ++depth;
    else if (c === ">" || c === ")") --depth;
    else if (depth === 0) short += c;
  }
  short = short.replace(/\(anonymous namespace\)::/g, "").trim();
  return short.length > 3 ? (short.length > 90 ? short.slice(0, 88) + "…" : short) : name.slice(0, 90);
}
const baseName = (path) => path.slice(path.lastIndexOf("/") + 1);

// --- elements -------------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child != null) node.append(child);
  return node;
}

// A figure: what a person reads, and beside it the number as the JSON output has it.
function figure(name, value, text, tag = "span", attributes = {}) {
  return el(tag, { ...attributes, "data-figure": name, "data-value": value == null ? "null" : String(value) }, text);
}

const section = (title, note, ...content) =>
  el("section", { class: "panel" }, el("h2", {}, title), note && el("p", { class: "dim small" }, note), ...content);

// Columns: {title, text: left-aligned, of: row > node or text, by: row > what to sort by, class}.
function table(columns, rows, { label, sort = null, descending = false, shown = 20 } = {}) {
  let order = [...rows];
  let limit = shown;
  const body = el("tbody");
  const more = el("button", { class: "more", type: "button", onclick: () => { limit = Infinity; fill(); more.parentElement.dataset.table = "whole"; } });
  const heads = columns.map((c) => el("th", { class: c.text ? "text" : null, scope: "col" },
    c.by ? el("button", { type: "button", onclick: () => sortBy(c, sort === c ? !descending : !c.text) }, c.title) : c.title));
  function fill() {
    body.replaceChildren(...order.slice(0, limit).map((row) =>
      el("tr", {}, columns.map((c) => el("td", { class: [c.text ? "text" : "", c.class || ""].join(" ").trim() || null }, c.of(row))))));
    more.hidden = order.length <= limit;
    more.textContent = `show all ${order.length}`;
  }
  function sortBy(column, down) {
    sort = column;
    descending = down;
    columns.forEach((c, i) => (c === column ? heads[i].setAttribute("aria-sort", down ? "descending" : "ascending") : heads[i].removeAttribute("aria-sort")));
    order = [...rows].sort((x, y) => {
      const [a, b] = [column.by(x), column.by(y)];
      if (a == null || b == null) return (a == null) - (b == null);  // unknown last, either way
      const by = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
      return down ? -by : by;
    });
    fill();
  }
  if (sort) sortBy(sort, descending); else fill();
  return el("div", { "data-table": "first" }, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body)), more);
}

function choice(label, values, onChange) {
  const select = el("select", { "aria-label": label, onchange: () => onChange(select.value) },
    values.map((v) => el("option", { value: v }, v)));
  return select;
}

function legend(keys, names) {
  return el("div", { class: "legend" }, keys.map((k) =>
    el("span", { title: MEANING[k] }, el("span", { class: "swatch", style: { background: `var(--${k})` } }), names[k])));
}

// One bar of parts that add up to 1.
function stackedBar(parts, names, label) {
  const total = parts.reduce((sum, [, v]) => sum + Math.max(0, v), 0) || 1;
  return el("div", { class: "bar", role: "img", "aria-label": label + ": " + parts.map(([k, v]) => `${names[k]} ${percent(v)}`).join(", ") },
    parts.filter(([, v]) => v > 0).map(([k, v]) => el("div", {
      title: `${names[k]} ${percent(v)}: ${names[k] === "matmul" ? "matmul kernels ran" : MEANING[k]}`,
      style: { width: (100 * v / total) + "%", background: `var(--${k})`, color: `var(--on-${k})` },
    }, v / total >= 0.06 ? (v * 100).toFixed(v / total >= 0.1 ? 1 : 0) : "")));
}

// --- charts ---------------------------------------------------------------------------------------------------------

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const faint = (hex) => hex + "33";
const charts = [];  // {canvas, make, chart}

// A canvas whose chart is made anew when the theme changes. `make` returns Chart.js's config, or null for none now.
function chart(name, label, make) {
  const canvas = el("canvas", { id: "chart-" + name, role: "img", "aria-label": label });
  const entry = { canvas, make, chart: null };
  charts.push(entry);
  entry.draw = () => {
    if (entry.chart) entry.chart.destroy();
    const config = make();
    entry.chart = config && new Chart(canvas, config);
  };
  return { box: el("div", { class: "chart" }, canvas), redraw: () => entry.draw() };
}

function drawCharts() {
  Object.assign(Chart.defaults, { animation: false, responsive: true, maintainAspectRatio: false, color: colour("dim"), borderColor: colour("line") });
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Chart.defaults.plugins.legend.labels.boxWidth = 12;
  Chart.defaults.plugins.legend.labels.boxHeight = 2;
  for (const entry of charts) entry.draw();
  for (const draw of timelineViews) draw();
}

const axis = (title, more = {}) => ({ title: { display: true, text: title }, grid: { color: colour("line") }, ...more });
const percentTicks = { callback: (v) => +(v * 100).toPrecision(3) + " %" };

function start(build) {
  document.getElementById("page").replaceChildren(...build().filter((node) => node != null));
  drawCharts();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
  document.body.dataset.ready = "yes";
}
