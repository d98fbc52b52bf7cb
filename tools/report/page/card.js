"use strict";
// A run to take away: as Markdown, and as a picture of the size that chats show.

function markdownText() {
  const cell = (v) => String(v).replace(/[|\n]/g, " ");
  const lines = [`**${cell(report.about.title)}**`, "", "| region | each | token/s | MFU | MBU | matmul loss | other | comm | copies | idle |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"];
  for (const r of regions) lines.push("| " + [r.region, duration(r.each_s), r.tokens_per_s != null ? scaled(r.tokens_per_s, "") : "–", mfuText(r), percent(r.mbu), ...CLASSES.map((c) => percent((r.lost || {})[c]))].map(cell).join(" | ") + " |");
  for (const o of job.opportunities.slice(0, 3)) lines.push(`${o === job.opportunities[0] ? "\n" : ""}- ${cell(o.region)}: ${cell(o.what)}${o.gain ? `, up to ${threeDigits(o.gain)}×` : ""}`);
  return lines.join("\n") + "\n";
}
function said(button, text) { const was = button.textContent; button.textContent = text; setTimeout(() => (button.textContent = was), 1500); }
function copyMarkdown(button, text = markdownText()) {
  const save = () => { el("a", { href: "data:text/markdown;charset=utf-8," + encodeURIComponent(text), download: "mfu.md" }).click(); said(button, "saved as mfu.md"); };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said(button, "copied"), save);
  else save();
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
  const gpus = report.devices.map((d) => `${count(d.count)} × ${d.name || "unnamed GPU"}`).join(", ");
  put([gpus, peakNames().slice(0, 2).join(", "), report.about.facts.workload].filter(Boolean).join(" · "), 60, 135, "24px", colour("dim"), 1080);
  const kind = !r ? null : byMemory(r) ? "MBU" : r.mfu == null && !isBound(r) && hfuIsExecuted(r) ? "HFU" : "MFU";
  const big = kind === "MBU" ? percent(r.mbu) : kind === "HFU" ? percent(r.hfu) : kind && (r.mfu != null || isBound(r)) ? mfuText(r) : null;
  put(big != null ? big : "MFU unknown", 60, 265, "700 96px", colour("text"), 620);
  put(r ? `${kind} of ${r.region}` : "", 60, 310, "28px", colour("dim"), 1080);
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
  job.opportunities.slice(0, 3).forEach((o, i) => put(`${o.region}: ${o.what}${o.gain ? `, up to ${threeDigits(o.gain)}×` : ""}`, 60, 505 + 32 * i, "22px", colour("text"), 1080));
  put(`mfuinject ${report.version}${report.start ? " · " + report.start.slice(0, 10) : ""}`, 60, 605, "18px", colour("dim"), 1080);
  return canvas;
}
// The clipboard takes pictures in a secure page only (https, localhost, a local file); elsewhere the file is saved.
function copyCard(button) {
  const picture = card();
  const save = () => { el("a", { href: picture.toDataURL("image/png"), download: "mfu.png" }).click(); said(button, "saved as mfu.png"); };
  if (!navigator.clipboard || !window.ClipboardItem) return save();
  const blob = new Promise((done) => picture.toBlob(done, "image/png"));
  navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]).then(() => said(button, "copied"), save);
}
