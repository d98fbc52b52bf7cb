"use strict";
// One run: answers first, then charts, then what they were worked out from.

function runPage() {
  const job = report.job;
  const regions = job.regions;
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

  function header() {
    const gpus = new Map();
    for (const d of report.devices) gpus.set(d.name || "unnamed GPU", (gpus.get(d.name || "unnamed GPU") || 0) + d.count);
    const about = report.about;
    const facts = [["", about.model], ["", about.facts.workload], ["", [...gpus].map(([name, n]) => `${n} × ${name}`).join(", ") || "no device"]];
    if (about.facts.parallel) facts.push(["", about.facts.parallel]);
    const peaks = [...new Set(report.devices.filter((d) => d.peak_flop_per_s).map((d) => `${d.dtype} ${d.sparse ? "2:4 sparse" : "dense"} ${scaled(d.peak_flop_per_s, "FLOP/s")}`))];
    if (peaks.length) facts.push(["peak ", peaks.join(", ")]);
    if (report.conventions.length) facts.push(["FLOP counted ", report.conventions.join(", ")]);
    if (job.processes > 1) facts.push(["", `${job.processes} processes` + (report.hosts ? ` on ${report.hosts} host${report.hosts === 1 ? "" : "s"}` : "")]);
    else if (about.facts.host) facts.push(["host ", about.facts.host]);
    facts.push(["", duration((job.t1_ns - job.t0_ns) / 1e9)]);
    if (report.start) facts.push(["from ", report.start]);
    facts.push(["", report.path]);
    if (report.versions.length) facts.push(["mfuinject ", report.versions.join(", ")]);
    const unfinished = job.processes - job.complete;
    return [
      el("div", { class: "head" }, el("h1", {}, about.title),
        el("div", { class: "actions" },
          el("button", { class: "more", type: "button", onclick: (e) => saveCard(e.target) }, "save as PNG"),
          el("button", { class: "more", type: "button", onclick: (e) => copyMarkdown(e.target) }, "copy as Markdown"))),
      el("ul", { class: "facts" }, facts.filter(([, value]) => value).map(([what, value]) => el("li", {}, what, el("b", {}, value))),
        unfinished > 0 ? el("li", {}, el("span", { class: "badge warn" }, job.processes === 1 ? "not finished: summed from its windows" : `${unfinished} of ${job.processes} not finished: summed from windows`)) : null,
        job.warnings.length ? el("li", {}, el("a", { href: "#warnings" }, `${job.warnings.length} remark${job.warnings.length === 1 ? "" : "s"}`)) : null),
    ];
  }

  // The region that a reader asks about first: the longest one with MFU.
  const main = named.find((r) => r.mfu != null && r.mfu <= 1) || named[0] || total;
  const byMemory = (r) => r.bound === "memory" && r.mbu != null;

  // --- what is worth doing, and what it would gain ---

  // Time that is given back makes the rest faster: a share x that goes away is 1 / (1 - x) times the rate.
  const gainOf = (share) => (share < 0.995 ? 1 / (1 - share) : null);
  function opportunities(r) {
    const p = partsOf(r);
    if (!p || r.region === "total") return [];
    const found = [];
    const share = Object.fromEntries(p.parts);
    const add = (value, key, what, todo) => { if (value >= 0.02) found.push({ region: r.region, share: value, key, what, todo, gain: gainOf(value) }); };
    const idle_s = r.time_s.idle;
    if (r.launches > 0 && r.instances > 0)
      add(share.idle, "idle", `idle ${percent(share.idle)}: ${count(Math.round(r.launches / r.instances))} launches per instance, ${duration(idle_s / r.launches)} of idle time each`,
        r.launches / r.instances > 50 ? "Launch less: CUDA graphs, torch.compile, larger batches. A gap of a few µs at every launch is the CPU." : "The GPU waits for the host between few launches: data loading, synchronisation, Python between steps.");
    else add(share.idle, "idle", `idle ${percent(share.idle)}`, "The GPU waits for the host.");
    const longest = (wanted) => r.top_kernels.find((k) => k.class === wanted);
    const other = longest("other");
    add(share.other, "other", `other kernels ${percent(share.other)}${other && r.kernel_sum_s > 0 ? `; ${shortName(other.name)} alone is ${percent(other.sum_s / r.elapsed_s)}` : ""}`,
      "Fuse element-wise work and normalisation (torch.compile, fused attention and optimizer): none of it counts as model FLOP.");
    add(share.comm, "comm", `exposed communication ${percent(share.comm)}`, "Overlap it with compute (bucket sizes, prefetch), or move less. Look for a rank that arrives last.");
    add(share.memcpy, "memcpy", `copies ${percent(share.memcpy)}`, "Pinned memory and copies on a stream of their own; fewer synchronising reads of results.");
    if (r.mfu != null && !byMemory(r)) {
      const gemm = longest("gemm");
      add(share.matmul, "matmul", `matmuls below the peak ${percent(share.matmul)}${gemm ? `; the longest is ${shortName(gemm.name)}` : ""}`,
        "Larger or better aligned shapes (multiples of 64 and 128), a faster dtype, fewer tiny batches. Not all of it can be had: 70 to 80 % of the peak is good.");
    }
    return found;
  }
  const shortName = (name) => { const short = name.replace(/^void /, "").replace(/[<(].*$/, ""); return short.length > 40 ? short.slice(0, 38) + "…" : short || name.slice(0, 40); };
  const allOpportunities = named.flatMap((r) => opportunities(r).map((o) => ({ ...o, weight: o.share * r.elapsed_s }))).sort((x, y) => y.weight - x.weight);

  function whatToDo() {
    if (!allOpportunities.length) return null;
    const rows = allOpportunities.slice(0, 5);
    return el("section", { class: "panel", id: "opportunities" }, el("h2", {}, "Opportunities"),
      el("p", { class: "dim small" }, "If that time went away and nothing else changed, the region would run so many times as fast: an upper bound."),
      el("ol", { class: "todo" }, rows.map((o) => el("li", {},
        el("span", { class: "swatch", style: { background: `var(--${o.key})` } }), el("b", {}, o.region), " ", o.what,
        o.gain ? el("span", { class: "gain" }, ` up to ${threeDigits(o.gain)}×`) : null,
        el("div", { class: "dim small" }, o.todo)))));
  }

  // 100 % of the time, step by step down to what the model needed.
  function stepsDown() {
    const r = main;
    const p = r && partsOf(r);
    if (!p || r.mfu == null || r.mfu > 1) return null;
    const share = Object.fromEntries(p.parts);
    const rows = [el("div", { class: "step" }, el("span", {}, "elapsed"), el("div", { class: "track" }, el("div", { class: "fill", style: { left: "0", width: "100%", background: "var(--line)" } })), el("b", {}, "100 %"))];
    let left = 1;
    for (const key of ["idle", "memcpy", "comm", "other", "matmul"]) {
      const lost = Math.max(0, share[key]);
      if (lost < 0.0005) continue;
      left -= lost;
      rows.push(el("div", { class: "step", title: MEANING[key] }, el("span", {}, "− " + LOST[key]),
        el("div", { class: "track" }, el("div", { class: "fill", style: { left: `${100 * Math.max(0, left)}%`, width: `${100 * lost}%`, background: `var(--${key})` } })), el("b", {}, percent(lost))));
    }
    rows.push(el("div", { class: "step total" }, el("span", {}, "= MFU"),
      el("div", { class: "track" }, el("div", { class: "fill", style: { left: "0", width: `${Math.min(100, 100 * r.mfu)}%`, background: "var(--mfu)" } })), el("b", {}, percent(r.mfu))));
    return el("section", { class: "panel" }, el("h2", {}, `From 100 % to MFU: ${r.region}`), el("div", { class: "steps", role: "img", "aria-label": "waterfall of " + r.region }, rows));
  }

  // Ranks beside each other: who is slowest, and who is not like the rest.
  function oddRanks() {
    const region = main && main.region;
    const rows = report.rows.filter((row) => row.region === region);
    if (rows.length < 3) return null;
    const key = rows.some((row) => row.mfu != null) ? "mfu" : "p50_s";
    const known = rows.filter((row) => row[key] != null);
    if (known.length < 3) return null;
    const sorted = known.map((row) => row[key]).sort((x, y) => x - y);
    const median = sorted[sorted.length >> 1];
    const spread = known.map((row) => Math.abs(row[key] - median)).sort((x, y) => x - y)[known.length >> 1];
    const text = key === "mfu" ? percent : duration;
    const slowest = key === "mfu" ? known.reduce((x, y) => (y.mfu < x.mfu ? y : x)) : known.reduce((x, y) => (y.p50_s > x.p50_s ? y : x));
    const odd = known.filter((row) => Math.abs(row[key] - median) > Math.max(5 * 1.4826 * spread, 0.02 * median)).sort((x, y) => Math.abs(y[key] - median) - Math.abs(x[key] - median));
    const waits = rows.filter((row) => row.comm != null);
    const least = waits.length > 2 ? waits.reduce((x, y) => (y.comm < x.comm ? y : x)) : null;
    const comms = waits.map((row) => row.comm).sort((x, y) => x - y);
    const usual = comms.length ? comms[comms.length >> 1] : 0;
    const lines = [];
    if (Math.abs(slowest[key] - median) > 0.005 * median) lines.push(`slowest: ${slowest.label}${slowest.host ? ` (${slowest.host})` : ""} with ${text(slowest[key])} in ${region}, median ${text(median)}`);
    if (odd.length) lines.push(`${odd.length === 1 ? "differs" : "differ"} from the others: ${odd.slice(0, 5).map((row) => `${row.label} ${text(row[key])}`).join(", ")}${odd.length > 5 ? ` and ${odd.length - 5} more` : ""}`);
    if (least && usual - least.comm > 0.01) lines.push(`${least.label} waits least in communication (${percent(least.comm)}, median ${percent(usual)}): the others may be waiting for it`);
    if (known.length < rows.length) lines.push(`${rows.length - known.length} of ${rows.length} ranks have no ${key === "mfu" ? "MFU" : "duration"}`);
    return lines.length ? el("ul", { class: "odd" }, lines.map((line) => el("li", {}, line))) : null;
  }

  // --- to take away ---

  function markdownText() {
    const cell = (v) => String(v).replace(/[|\n]/g, " ");
    const lines = [`**${cell(report.about.title)}**`, "", "| region | each | token/s | MFU | MBU | matmul loss | other | comm | copies | idle |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"];
    for (const r of regions) lines.push("| " + [r.region, duration(r.each_s), r.tokens_per_s != null ? scaled(r.tokens_per_s, "") : "–", percent(r.mfu), percent(r.mbu), ...CLASSES.map((c) => percent((r.lost || {})[c]))].map(cell).join(" | ") + " |");
    for (const o of allOpportunities.slice(0, 3)) lines.push(`${o === allOpportunities[0] ? "\n" : ""}- ${cell(o.region)}: ${cell(o.what)}${o.gain ? `, up to ${threeDigits(o.gain)}×` : ""}`);
    return lines.join("\n") + "\n";
  }
  function said(button, text) { const was = button.textContent; button.textContent = text; setTimeout(() => (button.textContent = was), 1500); }
  function copyMarkdown(button) {
    const text = markdownText();
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said(button, "copied"), () => said(button, "the browser refused"));
    else said(button, "the browser refused");
  }

  // A card of 1200 x 630, the size that chats and social sites show.
  function card() {
    const canvas = el("canvas", { width: 1200, height: 630 });
    const g = canvas.getContext("2d");
    const family = getComputedStyle(document.body).fontFamily;
    const put = (text, x, y, font, fill, most) => { g.font = `${font} ${family}`; g.fillStyle = fill; g.fillText(text, x, y, most); };
    g.fillStyle = colour("panel");
    g.fillRect(0, 0, 1200, 630);
    const r = main;
    put(report.about.model || baseName(report.path), 60, 90, "600 44px", colour("text"), 1080);
    const gpus = report.devices.map((d) => `${d.count} × ${d.name || "unnamed GPU"}`).join(", ");
    put([gpus, report.about.facts.workload].filter(Boolean).join(" · "), 60, 135, "24px", colour("dim"), 1080);
    const big = r && (byMemory(r) ? r.mbu : r.mfu);
    put(big != null ? percent(big) : "MFU unknown", 60, 265, "700 96px", colour("text"), 620);
    put(r ? `${byMemory(r) ? "MBU" : "MFU"} of ${r.region}` : "", 60, 310, "28px", colour("dim"), 1080);
    const p = r && partsOf(r);
    let x = 60;
    if (p) for (const [key, v] of p.parts) { const w = 1080 * Math.max(0, v); g.fillStyle = colour(key); g.fillRect(x, 350, w, 60); x += w; }
    if (p) {
      let at = 60;
      for (const [key, v] of p.parts) {
        if (v < 0.005) continue;
        const text = `${p.names[key]} ${percent(v)}`;
        g.fillStyle = colour(key);
        g.fillRect(at, 432, 16, 16);
        put(text, at + 24, 447, "20px", colour("text"));
        at += 24 + g.measureText(text).width + 26;
        if (at > 1000) break;
      }
    }
    allOpportunities.slice(0, 3).forEach((o, i) => put(`${o.region}: ${o.what}${o.gain ? `, up to ${threeDigits(o.gain)}×` : ""}`, 60, 505 + 32 * i, "22px", colour("text"), 1080));
    put(`mfuinject ${report.version}${report.start ? " · " + report.start.slice(0, 10) : ""}`, 60, 605, "18px", colour("dim"), 1080);
    return canvas;
  }
  function saveCard(button) {
    el("a", { href: card().toDataURL("image/png"), download: "mfu.png" }).click();
    said(button, "saved");
  }

  function answer(r) {
    const p = partsOf(r);
    const numbers = [];
    const add = (what, node) => numbers.push(el("span", {}, what, " ", node));
    const b = (key, value, text) => figure(`${r.region}.${key}`, value, text, "b");
    if (r.region !== "total" && r.instances) add("each", b("each_s", r.each_s, duration(r.each_s)));
    if (r.latency) add("p99", b("latency.p99_s", r.latency.p99_s, duration(r.latency.p99_s)));
    if (byMemory(r)) add("MFU", b("mfu", r.mfu, percent(r.mfu)));
    else if (r.mbu != null) add("MBU", b("mbu", r.mbu, percent(r.mbu)));
    if (r.hfu != null && r.hfu > r.mfu * 1.0005) add("HFU", b("hfu", r.hfu, percent(r.hfu)));
    if (r.bound) add("roofline:", el("b", {}, r.bound));
    if (r.tokens_per_s != null) add(r.devices > 1 ? "per GPU" : "", b("tokens_per_s", r.tokens_per_s, scaled(r.tokens_per_s, "token/s")));
    if (r.region !== "total") add("instances", b("instances", r.instances, count(r.instances)));
    add(r.devices > 1 ? "GPU time" : "elapsed", b("elapsed_s", r.elapsed_s, duration(r.elapsed_s)));
    const marks = [];
    if (r.suspect) marks.push(el("span", { class: "badge warn", title: r.suspect }, "suspect: " + r.suspect.split(":")[0]));
    if (r.named_by === "detector") marks.push(el("span", { class: "badge", title: r.detected ? `${r.detected.kind}, confidence ${r.detected.confidence}` : "" }, r.detected && r.detected.confidence === "high" ? "detected" : "inferred"));
    if (r.overlapped) marks.push(el("span", { class: "badge" }, "overlapped"));
    return el("div", { class: "answer", "data-region": r.region },
      el("div", { class: "head-cell" },
        el("div", { class: "name" }, r.region === "total" ? (job.processes > 1 ? "total (all processes)" : "total (the process)") : r.region, " ", marks),
        byMemory(r) ? figure(`${r.region}.mbu`, r.mbu, [percent(r.mbu), el("span", {}, "MBU")], "div", { class: "big" })
          : r.mfu != null ? figure(`${r.region}.mfu`, r.mfu, [mfuPercent(r.mfu), el("span", {}, "MFU")], "div", { class: "big" })
          : figure(`${r.region}.mfu`, null, "MFU unknown", "div", { class: "big unknown" })),
      el("div", {},
        p ? stackedBar(p.parts, p.names, r.region) : null,
        el("p", { class: "words" }, r.words ? r.words + "." : "", r.why_no_mfu && regions.find((x) => x.why_no_mfu === r.why_no_mfu) === r ? ` No MFU: ${r.why_no_mfu}.` : ""),
        el("div", { class: "numbers" }, numbers)));
  }

  function answers() {
    const shown = regions.length > 9 ? [...named.slice(0, 8), total].filter(Boolean) : regions;
    const rest = regions.length - shown.length;
    const keys = knowsMfu ? ["mfu", ...CLASSES] : CLASSES;
    return section("Where the time went", null, oddRanks(), legend(keys, knowsMfu ? LOST : TIME), shown.map(answer),
      rest > 0 ? el("p", { class: "dim small" }, `${rest} shorter regions are in the table below.`) : null);
  }

  function overTime() {
    const width = report.series.width_s;
    const shown = report.series.regions;
    const names = Object.keys(shown);
    if (!names.length) return null;
    const busy = !knowsMfu;
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
        const values = busy ? s.lost.map((l) => (l ? 1 - l[4] : null)) : s.mfu;
        datasets.push({ label: name, data: lines(s.bin, values), borderColor: c, backgroundColor: c, borderWidth: 2,
          borderDash: name === "total" ? [5, 4] : [], pointRadius: s.bin.length > 60 ? 0 : s.bin.length > 1 ? 2 : 5, pointHitRadius: 8 });
        if (s.low && !busy) {
          datasets.push({ label: name + " lowest", band: true, data: lines(s.bin, s.low), borderWidth: 0, pointRadius: 0, pointHitRadius: 0 });
          datasets.push({ label: name + " highest", band: true, data: lines(s.bin, s.high), borderWidth: 0, pointRadius: 0, pointHitRadius: 0, backgroundColor: faint(c), fill: "-1" });
        }
      }
      return { type: "line", data: { datasets }, options: {
        parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: axis("time since the first window", { type: "linear", min: 0, max: at(last + 0.5), ticks: { callback: clock, includeBounds: false, stepSize: timeStep(at(last + 0.5)), maxRotation: 0, autoSkipPadding: 14 } }),
                  y: axis(busy ? "GPU busy" : "MFU", { beginAtZero: true, ticks: percentTicks }) },
        plugins: { legend: { labels: { filter: (item, data) => !data.datasets[item.datasetIndex].band } },
          tooltip: { filter: (item) => Number.isFinite(item.parsed.y), callbacks: {
            title: (items) => items.length ? clock(items[0].parsed.x) : "", label: (item) => `${item.dataset.label} ${percent(item.parsed.y)}` } } } } };
    };
    const bands = Object.values(shown).some((s) => s.low);
    return section(busy ? "GPU busy over time" : "MFU over time",
      `Each point is ${duration(width)}${report.series.merged ? `: ${report.series.merged} windows are one, FLOP and time added up` : ""}.` +
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
      return { type: "bar", data: {
        labels: slot.map((_, i) => clock(+((first + i - origin) * width).toPrecision(6))),
        datasets: (anyMfu ? ["mfu", ...CLASSES] : CLASSES).map((k) => ({ label: names_[k], data: value(k), backgroundColor: colour(k), categoryPercentage: 1, barPercentage: length > 120 ? 1 : 0.92 })) },
        options: { interaction: { mode: "index", intersect: false },
          scales: { x: axis("window begins", { stacked: true, grid: { display: false }, ticks: { maxTicksLimit: 8, maxRotation: 0, autoSkipPadding: 14 } }),
                    y: axis("share of the region's time", { stacked: true, min: 0, max: 1, ticks: percentTicks }) },
          plugins: { legend: { labels: { boxHeight: 12 } }, tooltip: { callbacks: { label: (item) => `${item.dataset.label} ${percent(item.parsed.y)}` } } } } };
    };
    const c = chart("waterfall", "What each window's time went to", make);
    return el("section", { class: "panel" },
      el("div", { class: "head" }, el("h2", {}, "Waterfall over time"), choice("region", names, (v) => { region = v; c.redraw(); })), c.box);
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
          scales: { x: axis("up to", { grid: { display: false }, ticks: { maxTicksLimit: 6, maxRotation: 0, autoSkipPadding: 16 } }), y: axis("instances", { beginAtZero: true, grace: "20%", ticks: { precision: 0, maxTicksLimit: 5 } }) },
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
      ...anyOf(({ b }) => b.mfu, column("MFU", "mfu", ({ b }) => b.mfu, mfuPercent)),
      ...anyOf(({ b }) => b.mbu, column("MBU", "mbu", ({ b }) => b.mbu, percent)),
      ...anyOf(rate, { title: "tokens", of: (row) => scaled(rate(row), "token/s"), by: rate }),
      { title: "share of time", of: ({ r, b }) => percent(b.elapsed_s / r.elapsed_s), by: ({ r, b }) => b.elapsed_s / r.elapsed_s },
    ];
    const gaps = named.filter((r) => r.prefill_to_decode_s);
    const gap = (r) => el("p", {}, el("b", {}, r.region), " began ",
      ["p50", "p99", "max"].flatMap((q, i) => [i ? ", " : "", q + " ", figure(`${r.region}.prefill_to_decode_s.${q}`, r.prefill_to_decode_s[q], duration(r.prefill_to_decode_s[q]), "b")]),
      " after the prefill before it; ", figure(`${r.region}.after_prefill`, r.after_prefill, count(r.after_prefill), "b"), ` of ${count(r.instances)} came after a prefill.`);
    return section("Latency by batch", "Of decode the time of a pass, which is the time between two tokens of a request; of prefill and mixed passes the time of the instance.",
      table(columns, rows, { label: "latency by batch" }), gaps.map(gap));
  }

  function slowest() {
    const rows = named.flatMap((r) => r.slowest.map((s, i) => ({ r, s, i })));
    if (!rows.length) return null;
    const several = report.rows.length > regions.length;
    const known = rows.some(({ s }) => s.lost_to != null);
    const columns = [
      { title: "region", text: true, of: ({ r }) => r.region, by: ({ r }) => r.region },
      ...(several ? [{ title: "where", text: true, of: ({ s }) => s.where, by: ({ s }) => s.where }] : []),
      { title: "nth", of: ({ s }) => count(s.nth), by: ({ s }) => s.nth },
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

  function regionTable() {
    const f = (key, of, text) => (r) => figure(`${r.region}.${key}`, of(r), text(of(r)));
    const column = (title, key, of, text) => ({ title, of: f(key, of, text), by: of });
    const anyOf = (of, ...wanted) => (regions.some(of) ? wanted : []);
    const columns = [
      { title: "region", text: true, of: (r) => r.region, by: (r) => r.region },
      column("MFU", "mfu", (r) => r.mfu, mfuPercent), ...anyOf((r) => r.mfu_busy != null, column("busy MFU", "mfu_busy", (r) => r.mfu_busy, percent)),
      ...anyOf((r) => r.hfu > r.mfu * 1.0005, column("HFU", "hfu", (r) => r.hfu, percent)),
      ...anyOf((r) => r.mbu != null, column("MBU", "mbu", (r) => r.mbu, percent)),
      ...CLASSES.map((c) => column((knowsMfu && c === "matmul" ? "matmul loss" : c === "memcpy" ? "copies" : c), `${knowsMfu ? "lost" : "time_s"}.${c}`, (r) => (knowsMfu ? r.lost : r.time_s)[c], knowsMfu ? percent : duration)),
      column("instances", "instances", (r) => r.instances, count), column("each", "each_s", (r) => r.each_s, duration),
      column("elapsed", "elapsed_s", (r) => r.elapsed_s, duration), column("kernels", "kernels", (r) => r.kernels, count), column("launches", "launches", (r) => r.launches, count),
      ...anyOf((r) => r.clock_ratio != null, column("clock", "clock_ratio", (r) => r.clock_ratio, percent)),
    ];
    return section("Regions", "Times of several devices are added up. The five classes are exclusive: a moment belongs to the first one that runs.",
      table(columns, regions, { label: "regions" }));
  }

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
        { title: "of elapsed", of: (k) => percent(r.elapsed_s > 0 ? k.sum_s / r.elapsed_s : null), by: (k) => k.sum_s },
        { title: "count", of: (k) => count(k.count), by: (k) => k.count },
        { title: "time", of: (k) => duration(k.sum_s), by: (k) => k.sum_s },
        { title: "each", of: (k) => duration(k.sum_s / k.count), by: (k) => k.sum_s / k.count },
        { title: "of kernel time", of: (k) => figure(`${name}.kernel.${k.name}`, k.sum_s, percent(share(k))), by: share },
      ], r.top_kernels, { label: "kernels of " + name }));
    };
    show(names[0]);
    return el("section", { class: "panel" }, el("div", { class: "head" }, el("h2", {}, "Top kernels"), choice("region", names, show)), place);
  }

  function ranks() {
    if (report.rows.length <= regions.length) return null;
    const names = [...new Set(report.rows.map((row) => row.region))].sort((a, b) => (a === "total") - (b === "total"));
    const place = el("div");
    const by = (title, key, text, more = {}) => ({ title, of: (row) => (text ? text(row[key]) : row[key]), by: (row) => row[key], ...more });
    const mfu = by("MFU", "mfu", mfuPercent);
    const p50 = by("p50", "p50_s", duration);
    const known = (column, key) => (report.rows.some((row) => row[key] != null && row[key] !== "") ? [column] : []);
    const columns = [by("rank", "label", null, { text: true }), ...known(by("host", "host", null, { text: true }), "host"), ...known(mfu, "mfu"), ...known(by("MBU", "mbu", percent), "mbu"),
      by("instances", "instances", count), p50, by("p99", "p99_s", duration), by("idle", "idle", percent), by("comm", "comm", percent), by("elapsed", "elapsed_s", duration),
      ...known(by("clock", "clock_ratio", percent), "clock_ratio")];
    const show = (name) => place.replaceChildren(table(columns, report.rows.filter((row) => row.region === name), knowsMfu ? { label: "ranks", sort: mfu } : { label: "ranks", sort: p50, descending: true }));
    show(names[0]);
    return el("section", { class: "panel", id: "ranks" }, el("div", { class: "head" }, el("h2", {}, "Ranks and devices"), choice("region", names, show)),
      report.rows_left_out ? el("p", { class: "dim small" }, `${report.rows_left_out} further rows are in --json.`) : null, place);
  }

  function divided() {
    const peaks = table([
      { title: "GPU", text: true, of: (d) => d.name || "unnamed" }, { title: "devices", of: (d) => count(d.count) },
      { title: "dtype", text: true, of: (d) => d.dtype + (d.sparse ? " 2:4 sparse" : "") }, { title: "dtype by", text: true, of: (d) => d.dtype_source },
      { title: "peak", of: (d) => figure(`peak.${d.name}`, d.peak_flop_per_s, scaled(d.peak_flop_per_s, "FLOP/s")) }, { title: "bandwidth", of: (d) => scaled(d.peak_bytes_per_s, "B/s") },
      { title: "source", text: true, class: "long", of: (d) => d.peak_source },
    ], report.devices, { label: "peaks" });
    const quotients = table([
      { title: "region", text: true, of: (r) => r.region },
      { title: "FLOP", of: (r) => figure(`${r.region}.flop`, r.flop, scaled(r.flop, "FLOP")) },
      { title: "÷ peak × elapsed", of: (r) => figure(`${r.region}.flop_at_peak`, r.flop_at_peak, scaled(r.flop_at_peak, "FLOP")) },
      { title: "over", of: (r) => figure(`${r.region}.counted_s`, r.counted_s, duration(r.counted_s)) },
      { title: "= MFU", of: (r) => mfuPercent(r.mfu) },
      { title: "bytes", of: (r) => figure(`${r.region}.bytes`, r.bytes, scaled(r.bytes, "B")) },
      { title: "÷ bandwidth × elapsed", of: (r) => scaled(r.bytes_at_peak, "B") },
      { title: "= MBU", of: (r) => percent(r.mbu) },
      { title: "named by", text: true, of: (r) => (r.named_by === "detector" ? "inferred" : r.named_by || "–") },
    ], regions, { label: "quotients" });
    const note = knowsMfu ? `MFU = model FLOP ÷ (peak × elapsed). FLOP counted by the convention ${report.conventions.join(", ")}.` : "Nothing yet: without FLOP there is no MFU. These are the peaks that they would be divided by.";
    return section("How MFU is computed", note, peaks, el("p", {}), knowsMfu ? quotients : null);
  }

  // The tool's own proof: one line, unless something is missing.
  function launches() {
    const l = job.launches;
    const counters = Object.entries(job.counters || {});
    const f = (key) => figure("launches." + key, l[key], count(l[key]));
    const lost = l ? l.unattributed + l.dropped : 0;
    const line = l ? el("p", { class: lost > l.seen / 1000 ? "" : "dim small" }, "Launches: ", f("seen"), " = ", f("attributed"), " in a region + ", f("outside"), " outside every region + ", f("unattributed"), " that nothing decides between regions + ", f("dropped"), " without a record from CUPTI.", l.not_timed != null ? [" Of the others ", f("not_timed"), " have a record without a usable time."] : "")
      : el("p", { class: "dim small" }, "Launches are counted at the end of a run, and this one has no end.");
    const notes = el("p", { class: "dim small" }, counters.length ? `Counted on the way: ${counters.map(([k, n]) => `${k} ${count(n)}`).join(", ")}. ` : "",
      job.self && !report.trace ? `The library itself: ${duration(job.self.cpu_s)} CPU, ${scaled(job.self.rss_bytes, "B")}, ${(job.self.overhead * 100).toFixed(2)} % of the run in callbacks.` : "");
    return lost > (l ? l.seen / 1000 : 0) ? section("Launches that are missing", null, line, notes) : el("div", { class: "account" }, line, notes);
  }

  function warnings() {
    if (!job.warnings.length) return null;
    return el("section", { class: "panel", id: "warnings" }, el("h2", {}, "Caveats"),
      el("ul", { class: "warnings" }, job.warnings.map((w) => el("li", {}, el("b", {}, w.kind), " ", w.message,
        el("span", { class: "dim small" }, [w.source ? " " + baseName(w.source) : "", w.count > 1 ? ` ${count(w.count)} times` : ""].join(""))))));
  }

  return [...header(), answers(),
    el("div", { class: "grid" }, stepsDown(), whatToDo()),
    el("div", { class: "grid" }, overTime(), waterfallOverTime()),
    el("div", { class: "grid" }, [knowsMfu ? roofline() : null, distributions()].filter(Boolean).map((panel) => { panel.classList.add("wide"); return panel; })),
    batches(), slowest(), kernels(), regionTable(), ranks(), divided(), warnings(), launches(),
    el("footer", {}, `Written by mfu report ${report.version}. Charts: Chart.js ${Chart.version}, MIT licence.`)];
}

if (report.kind === "run") start(runPage);
