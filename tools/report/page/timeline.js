"use strict";
// Single instances: a strip of all of them, and the slowest beside the median one, kernel by kernel.

const BAR_KINDS = ["matmul", "other", "comm", "memcpy", "range", "launch"];  // as kWords<BarKind>
const TIMELINE = { ...TIME, comm: "communication", range: "ranges of the host", launch: "calls" };
const BAR_NAMES = { matmul: "matmul kernel", other: "other kernel", comm: "communication", memcpy: "copy", range: "range", launch: "call" };

// --- every instance -------------------------------------------------------------------------------------------------

// One dot per instance where each is known, else one per window: the median, and the longest.
function stepStrip() {
  const drawn = new Map((report.timelines || []).map((t) => [t.region, t]));
  const names = named.map((r) => r.region).filter((name) => drawn.has(name) || (report.series.regions[name] || {}).median_s);
  if (!names.length) return null;
  let region = names[0];
  const note = el("p", { class: "dim small" });
  const dots = () => {
    const t = drawn.get(region);
    if (t) {
      note.textContent = `Each of ${count(t.instances_in_all)} instances${t.instances.length < t.instances_in_all ? `; ${count(t.instances.length)} are shown, the longest among them` : ""} (${[t.where, baseName(t.recording)].filter(Boolean).join(", ")}).`;
      const points = t.instances.map(([x, y]) => ({ x, y }));
      const slow = points.length > 1 ? points.filter((p) => p.y === Math.max(...points.map((q) => q.y)) && p.y > 1.1 * t.median_s).slice(0, 1) : [];
      return { points, median: t.median_s, marked: slow.map((p) => ({ ...p, text: `#${t.slowest.nth} ${duration(p.y)}` })) };
    }
    const s = report.series.regions[region];
    const r = regions.find((x) => x.region === region);
    const first = Math.min(...Object.values(report.series.regions).map((x) => x.bin[0]));
    const at = (k) => (s.bin[k] - first + 0.5) * report.series.width_s;
    note.textContent = "Each window: the median of its instances, and the longest one. A recording (MFU_TRACE) or a trace has each instance.";
    const windows = (values) => values.map((y, k) => ({ x: at(k), y })).filter((p) => p.y != null);
    const marked = r.slowest.slice(0, 3).map((i) => ({ x: (i.t0_ns - job.t0_ns) / 1e9, y: i.elapsed_s, text: `#${i.nth}${report.rows.length > regions.length ? " " + i.where : ""}` }));
    return { points: windows(s.longest_s), medians: windows(s.median_s), marked };
  };
  // What is marked is said beside its dot; a second name that would lie on the first is left out.
  const names_ = { id: "marks", afterDatasetsDraw(c) {
    const { ctx, chartArea } = c;
    ctx.save();
    ctx.font = "12px " + Chart.defaults.font.family;
    ctx.fillStyle = colour("text");
    ctx.textBaseline = "middle";
    const taken = [];
    c.data.datasets.forEach((set, i) => {
      if (!set.texts) return;
      c.getDatasetMeta(i).data.forEach((point, k) => { const { x, y } = point.getProps(["x", "y"]); taken.push({ left: x - 3, right: x + 3, y, of: k }); });
      c.getDatasetMeta(i).data.forEach((point, k) => {
        const w = ctx.measureText(set.texts[k]).width;
        const { x, y } = point.getProps(["x", "y"]);
        // Beside its own mark, on the side where there is neither a name nor another mark.
        const free = (at) => at > chartArea.left && at + w < chartArea.right && !taken.some((b) => b.of !== k && at < b.right + 6 && at + w > b.left - 6 && Math.abs(y - b.y) < 15);
        const left = [x + 9, x - 9 - w].find(free);
        if (left == null) return;
        taken.push({ left, right: left + w, y });
        ctx.fillText(set.texts[k], left, Math.max(y, chartArea.top + 7));
      });
    });
    ctx.restore();
  } };
  const make = () => {
    const { points, median, medians, marked } = dots();
    const c = colour(seriesColour.get(region));
    const last = Math.max(1e-9, ...points.map((p) => p.x), ...marked.map((p) => p.x));
    const datasets = [];
    if (medians) datasets.push({ type: "line", label: "median", data: medians, borderColor: c, backgroundColor: c, borderWidth: 2, pointRadius: medians.length > 60 ? 0 : 2 });
    else datasets.push({ type: "line", label: "median", data: [{ x: 0, y: median }, { x: last, y: median }], borderColor: colour("dim"), borderWidth: 1, borderDash: [5, 4], pointRadius: 0, pointHitRadius: 0 });
    datasets.push({ label: medians ? "longest of the window" : "instances", data: points, backgroundColor: medians ? "transparent" : c, borderColor: c, borderWidth: medians ? 1 : 0, pointRadius: points.length > 400 ? 1.5 : 3, pointHitRadius: 6, clip: 8 });
    if (marked.length) datasets.push({ label: "slowest", data: marked.map(({ x, y }) => ({ x, y })), texts: marked.map((m) => m.text), pointStyle: "rectRot", backgroundColor: colour("warn-line"), borderColor: colour("panel"), pointRadius: 6 });
    return { type: "scatter", plugins: [names_], data: { datasets }, options: { parsing: false, normalized: true,
      scales: { x: timeAxis("time since the first one", last * 1.02),
                y: axis("took", { beginAtZero: true, grace: "8%", ticks: { callback: (v) => duration(v), maxTicksLimit: 6 } }) },
      plugins: { legend: { labels: { usePointStyle: true, boxHeight: 6 } }, tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${duration(item.parsed.y)} at ${clock(item.parsed.x)}` } } } } };
  };
  const strip = chart("strip", "How long each instance took, over time", make);
  strip.box.classList.add("low");
  return el("section", { class: "panel", id: "strip" },
    el("div", { class: "head" }, el("h2", {}, "Every instance"), choice("region", names, (v) => { region = v; strip.redraw(); })), note, strip.box);
}

// --- one instance ---------------------------------------------------------------------------------------------------

const timelineViews = [];

// A canvas of rows of bars under an axis. `view` {from, to} in ns is shared with the timeline beside it.
function timelineCanvas(which, t, view) {
  const canvas = el("canvas", {});
  const tip = el("div", { class: "tip", hidden: true });
  const said = el("p", { class: "dim small in-view", "aria-live": "polite" });
  const box = el("div", { class: "timeline", tabindex: "0", role: "img", "aria-label": `${which}: ${t.rows.map((r) => `${r.label} ${count(r.bars.length)} bars`).filter((x) => !x.startsWith(" ")).join(", ")}. Zoom with plus and minus, move with the arrow keys.` }, canvas, tip);
  const top = 20, host = 15, device = 20;
  const isDevice = (row) => row.bars.length && row.bars[0][3] < 4;
  const heights = t.rows.map((row) => (isDevice(row) ? device : host));
  const height = top + heights.reduce((sum, h) => sum + h + 2, 0) + 2;
  canvas.style.height = box.style.height = height + "px";
  let gutter = 96;
  const xOf = (ns, width) => gutter + ((ns - view.from) / (view.to - view.from)) * (width - gutter);
  const nsOf = (x, width) => view.from + ((x - gutter) / (width - gutter)) * (view.to - view.from);

  function draw() {
    const width = box.clientWidth;
    if (!width) return;
    gutter = width < 500 ? 62 : 110;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px " + getComputedStyle(document.body).fontFamily;
    g.textBaseline = "middle";
    const line = colour("line"), dim = colour("dim"), text = colour("text");
    const step = timeStep((view.to - view.from) / 1e9, labelsIn(width - gutter)) * 1e9;
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const x = Math.round(xOf(at, width)) + 0.5;
      g.fillStyle = line;
      g.fillRect(x, 14, 1, height);
      const label = at === 0 ? "0" : (at < 0 ? "−" : "") + duration(Math.abs(at) / 1e9);
      g.fillStyle = dim;
      const w = g.measureText(label).width;
      if (x - w / 2 >= gutter && x + w / 2 <= width) g.fillText(label, x - w / 2, 7);
    }
    const colours = BAR_KINDS.map((k) => colour(k)), on = BAR_KINDS.map((k) => colour("on-" + k));
    let y = top;
    t.rows.forEach((row, i) => {
      const h = heights[i];
      g.save();
      g.beginPath();
      g.rect(0, y, gutter - 6, h);
      g.clip();
      g.fillStyle = dim;
      g.fillText(row.label, 0, y + h / 2);
      g.restore();
      g.save();
      g.beginPath();
      g.rect(gutter, y, width - gutter, h);
      g.clip();
      for (const [begin, length, name, kind, n] of row.bars) {
        if (begin > view.to || begin + length < view.from) continue;
        const x0 = xOf(begin, width), w = Math.max(0.8, xOf(begin + length, width) - x0);
        g.fillStyle = colours[kind];
        g.fillRect(x0, y, w > 3 ? w - 0.5 : w, h);
        if (w < 34) continue;
        const from = Math.max(x0, gutter) + 3;
        const room = Math.min(x0 + w, width) - from - 2;
        let label = (n > 1 ? `${n}× ` : "") + (kind < 3 ? shortKernel(t.names[name]) : t.names[name]);
        while (label.length > 3 && g.measureText(label).width > room) label = label.slice(0, Math.max(2, Math.floor(label.length * 0.8) - 1)) + "…";
        if (g.measureText(label).width > room) continue;
        g.fillStyle = on[kind];
        g.fillText(label, from, y + h / 2);
      }
      g.restore();
      y += h + 2;
    });
    // Where the instance begins and ends.
    g.fillStyle = text;
    for (const edge of [0, t.elapsed_s * 1e9]) if (edge >= view.from && edge <= view.to) g.fillRect(Math.round(xOf(edge, width)), 14, 1, height);
    const from = Math.max(view.from, 0), to = Math.min(view.to, t.elapsed_s * 1e9);
    const sums = [0, 0, 0, 0];
    const all = [];
    for (const row of t.rows) for (const [begin, length, , kind] of row.bars) {
      if (kind > 3) continue;
      const a = Math.max(begin, from), b = Math.min(begin + length, to);
      if (b > a) { sums[kind] += b - a; all.push([a, b]); }
    }
    all.sort((p, q) => p[0] - q[0]);
    let reached = from, busy = 0, gap = 0;
    for (const [a, b] of all) { gap = Math.max(gap, a - reached); if (b > reached) { busy += b - Math.max(a, reached); reached = b; } }
    gap = Math.max(gap, to - reached);
    said.textContent = to > from ? `In view ${duration((to - from) / 1e9)}: ` + BAR_KINDS.slice(0, 4).map((k, i) => [TIMELINE[k], sums[i]]).filter(([, s]) => s > 0).map(([k, s]) => `${k} ${duration(s / 1e9)}`).concat([`nothing ran for ${duration(Math.max(0, to - from - busy) / 1e9)}`, `longest gap ${duration(gap / 1e9)}`]).join(", ") + "." : "";
  }

  function under(x, y) {
    const width = box.clientWidth;
    let at = top;
    for (let i = 0; i < t.rows.length; ++i) {
      if (y >= at && y < at + heights[i] + 2) {
        const slack = (view.to - view.from) / (width - gutter);  // one pixel
        const ns = nsOf(x, width);
        let best = null;
        for (const bar of t.rows[i].bars) if (ns >= bar[0] - slack && ns <= bar[0] + bar[1] + slack && (!best || bar[1] <= best[1])) best = bar;
        return best;
      }
      at += heights[i] + 2;
    }
    return null;
  }
  function showTip(e) {
    const place = box.getBoundingClientRect();
    const x = e.clientX - place.left, y = e.clientY - place.top;
    const bar = x > gutter ? under(x, y) : null;
    tip.hidden = !bar;
    if (!bar) return;
    const [begin, length, name, kind, n] = bar;
    tip.replaceChildren(el("b", {}, n > 1 ? `${count(n)} neighbours, the first: ${t.names[name]}` : t.names[name]), el("br"), `${BAR_NAMES[BAR_KINDS[kind]]}, ${duration(length / 1e9)}, ${begin < 0 ? "−" : ""}${duration(Math.abs(begin) / 1e9)} after the begin`);
    tip.style.left = Math.max(0, Math.min(x + 12, box.clientWidth - Math.min(360, box.clientWidth))) + "px";
    tip.style.top = y + 16 + "px";
  }
  return { box, said, draw, showTip, hideTip: () => (tip.hidden = true), nsOf: (x) => nsOf(x, box.clientWidth), scale: () => (view.to - view.from) / Math.max(1, box.clientWidth - gutter), gutter: () => gutter };
}

function instanceTimelines() {
  const all = report.timelines || [];
  if (!all.length) return null;
  const place = el("div");
  const show = (name) => {
    const t = all.find((x) => x.region === name);
    const same = t.slowest.nth === t.median.nth && t.slowest.t0_ns === t.median.t0_ns;
    const longest = Math.max(t.slowest.elapsed_s, t.median.elapsed_s) * 1e9;
    const whole = { from: -0.01 * longest, to: 1.01 * longest };
    const view = { ...whole };
    const shown = [["slowest", t.slowest], ...(same ? [] : [["median", t.median]])].map(([which, i]) => ({ which, i, c: timelineCanvas(which, i, view) }));
    const draw = () => shown.forEach(({ c }) => c.draw());
    const limit = (from, to) => {
      const least = 200, length = Math.min(whole.to - whole.from, Math.max(least, to - from));
      view.from = Math.max(whole.from, Math.min(from, whole.to - length));
      view.to = view.from + length;
      draw();
    };
    const zoom = (factor, around = (view.from + view.to) / 2) => limit(around - (around - view.from) * factor, around + (view.to - around) * factor);
    const move = (share) => { const by = share * (view.to - view.from); limit(view.from + by, view.to + by); };
    const keys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => limit(whole.from, whole.to), Home: () => limit(whole.from, whole.from + view.to - view.from),
      End: () => limit(whole.to - view.to + view.from, whole.to), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), w: () => zoom(0.5), s: () => zoom(2), a: () => move(-0.2), d: () => move(0.2) };
    for (const { c } of shown) {
      const pointers = new Map();
      c.box.addEventListener("keydown", (e) => { if (keys[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) { keys[e.key](); e.preventDefault(); } });
      c.box.addEventListener("wheel", (e) => {
        if (e.ctrlKey || e.metaKey) zoom(e.deltaY > 0 ? 1.25 : 0.8, c.nsOf(e.clientX - c.box.getBoundingClientRect().left));
        else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const by = (e.deltaX || e.deltaY) * c.scale(); limit(view.from + by, view.to + by); }
        else return;
        e.preventDefault();
      }, { passive: false });
      c.box.addEventListener("dblclick", (e) => zoom(0.25, c.nsOf(e.clientX - c.box.getBoundingClientRect().left)));
      c.box.addEventListener("pointerdown", (e) => { pointers.set(e.pointerId, e.clientX); c.box.setPointerCapture(e.pointerId); c.hideTip(); });
      c.box.addEventListener("pointermove", (e) => {
        const before = pointers.get(e.pointerId);
        if (before == null) return c.showTip(e);
        if (pointers.size === 1) { const by = (before - e.clientX) * c.scale(); limit(view.from + by, view.to + by); }
        else if (pointers.size === 2) {
          const other = [...pointers].find(([id]) => id !== e.pointerId)[1];
          const was = Math.abs(before - other), is = Math.abs(e.clientX - other);
          if (was > 4 && is > 4) zoom(was / is, c.nsOf((e.clientX + other) / 2 - c.box.getBoundingClientRect().left));
        }
        pointers.set(e.pointerId, e.clientX);
      });
      for (const end of ["pointerup", "pointercancel"]) c.box.addEventListener(end, (e) => pointers.delete(e.pointerId));
      c.box.addEventListener("pointerleave", c.hideTip);
      c.box.addEventListener("blur", c.hideTip);
    }
    const button = (text, label, action) => el("button", { class: "more", type: "button", "aria-label": label, onclick: action }, text);
    place.replaceChildren(
      el("p", { class: "dim small" }, `${[t.where, baseName(t.recording)].filter(Boolean).join(", ")}. Drag to move, Ctrl + wheel or double click to zoom; + − 0 and arrow keys where it has the focus.`),
      el("div", { class: "head" }, legend(["matmul", "other", "comm", "memcpy", "range", "launch"], TIMELINE),
        el("div", { class: "actions" }, button("−", "zoom out", () => zoom(2)), button("+", "zoom in", () => zoom(0.5)), button("←", "move left", () => move(-0.3)), button("→", "move right", () => move(0.3)), button("all", "show all", () => limit(whole.from, whole.to)))),
      ...shown.flatMap(({ which, i, c }) => [
        el("p", {}, el("b", {}, same ? "the only one" : which), ` #${i.nth}, `, el("b", {}, duration(i.elapsed_s)), which === "slowest" && !same ? `, ${threeDigits(i.elapsed_s / t.median_s)}× the median` : "",
          i.rows_left_out ? el("span", { class: "dim small" }, ` ${i.rows_left_out} threads or streams with less work are left out`) : null),
        c.box, c.said]));
    timelineViews.length = 0;
    timelineViews.push(draw);
    draw();
  };
  const panel = el("section", { class: "panel", id: "timeline" }, el("div", { class: "head" }, el("h2", {}, "Slowest and median instance"), choice("region", all.map((t) => t.region), show)), place);
  new ResizeObserver(() => timelineViews.forEach((draw) => draw())).observe(panel);
  show(all[0].region);
  return panel;
}
