// What report_layout_test.py asks of a page. Each function returns what is wrong, or what was asked for.
window.checks = {
  // Text that lies on other text, but for what a parent scrolls away or hides.
  overlaps() {
    const texts = [];
    const walk = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const node = walk.currentNode;
      if (!node.textContent.trim() || node.parentElement.closest("option, noscript, [hidden]")) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      let clip = { left: 0, right: document.documentElement.scrollWidth, top: 0, bottom: 1e9 };
      for (let e = node.parentElement; e; e = e.parentElement)
        if (getComputedStyle(e).overflow !== "visible") {
          const r = e.getBoundingClientRect();
          clip = { left: Math.max(clip.left, r.left), right: Math.min(clip.right, r.right), top: Math.max(clip.top, r.top), bottom: Math.min(clip.bottom, r.bottom) };
        }
      for (const r of range.getClientRects()) {
        const box = { left: Math.max(r.left, clip.left), right: Math.min(r.right, clip.right), top: Math.max(r.top, clip.top), bottom: Math.min(r.bottom, clip.bottom), node, text: node.textContent.trim() };
        if (box.right - box.left > 1 && box.bottom - box.top > 1) texts.push(box);
      }
    }
    texts.sort((a, b) => a.top - b.top);
    const met = [];
    for (let i = 0; i < texts.length; ++i)
      for (let k = i + 1; k < texts.length && texts[k].top < texts[i].bottom; ++k) {
        const [a, b] = [texts[i], texts[k]];
        // A text that is cut short has a second box, its ellipsis.
        if (a.node === b.node && getComputedStyle(a.node.parentElement).textOverflow === "ellipsis") continue;
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - b.top;
        if (x > 1.5 && y > 4) met.push([a.text.slice(0, 50), b.text.slice(0, 50), x, y]);
      }
    return met;
  },

  // Labels of an axis that touch, or leave the canvas.
  ticks() {
    const met = [];
    for (const canvas of document.querySelectorAll("canvas")) {
      const chart = Chart.getChart(canvas);
      if (!chart) continue;
      const g = canvas.getContext("2d");
      for (const scale of Object.values(chart.scales)) {
        const flat = scale.isHorizontal();
        let end = -1e9;
        const labels = scale.ticks.map((t, i) => [scale.getPixelForTick(i), t.label]).filter(([, l]) => l != null && l !== "").sort((a, b) => a[0] - b[0]);
        for (const [at, label] of labels) {
          g.font = "12px " + Chart.defaults.font.family;
          const half = flat ? g.measureText(label).width / 2 : 6;
          if (at - half < end + (flat ? 2 : 0)) met.push([canvas.id, scale.id, label]);
          if (flat && (at + half > chart.width + 1 || at - half < -1)) met.push([canvas.id, "beyond the edge", label]);
          end = at + half;
        }
        if (labels.length < 2 && scale.type !== "logarithmic" && scale.id === "y") met.push([canvas.id, scale.id, "fewer than two labels"]);
      }
    }
    return met;
  },

  // Where the first timeline is, once it is in view: left, top, width, height.
  timeline() {
    const box = document.querySelector("#timeline .timeline");
    box.scrollIntoView();
    const r = box.getBoundingClientRect();
    return [r.left, r.top, r.width, r.height];
  },

  tip() {
    const tip = document.querySelector("#timeline .tip");
    return tip.hidden ? "" : tip.textContent;
  },

  press(key) {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  },

  // Controls that the keyboard does not reach, or that have no name.
  unreachable() {
    const named = (e) => (e.textContent || e.getAttribute("aria-label") || "").trim();
    return [...document.querySelectorAll("button, select, [tabindex], a")].filter((e) => !e.closest("[hidden]") && e.offsetParent)
      .filter((e) => !named(e) || e.tabIndex < 0).map((e) => e.outerHTML);
  },

  // Clicks a button, and returns what it says afterwards.
  async click(text) {
    const button = [...document.querySelectorAll("button")].find((b) => b.textContent === text);
    button.click();
    for (let i = 0; i < 500 && button.textContent === text; ++i) await new Promise((done) => setTimeout(done, 20));
    return button.textContent;
  },

  async picture() {
    const [item] = await navigator.clipboard.read();
    return [...new Uint8Array(await (await item.getType("image/png")).arrayBuffer())];
  },
};
