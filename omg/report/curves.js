// Curves: values under the pointer, zoom, smoothing. The page's own drawing stays until one is used.
const shownNumber = (value) => {
  const size = Math.abs(value);
  const digits = size !== 0 && size < 0.01 ? 5 : size < 10 ? 3 : size < 100 ? 2 : 1;
  return value.toFixed(digits).replace("-", "−");
};
const nearest = (steps, x) => {
  let low = 0;
  let high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < x) low = middle; else high = middle;
  }
  return x - steps[low] <= steps[high] - x ? low : high;
};
const niceTicks = (low, high, count = 5) => {
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) {
    const pad = Math.abs(low) * 0.1 || 1;
    [low, high] = [low - pad, high + pad];
  }
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((s) => s >= rough * 0.999);
  const ticks = [];
  const last = Math.ceil(high / step - 1e-9);
  for (let i = Math.floor(low / step + 1e-9); i <= last; i += 1) {
    ticks.push(Number((i * step).toPrecision(10)));
  }
  return ticks;
};
const tickText = (value, ticks) => {
  const top = Math.max(...ticks.map(Math.abs));
  const [size, letter] = top >= 1e6 ? [1e6, "M"] : top >= 1e4 ? [1e3, "k"] : [1, ""];
  const gap = (ticks[1] - ticks[0]) / size || 1;
  const places = Math.max(0, Math.min(8, [0, 1, 2, 3, 4, 5, 6, 7, 8].find(
    (p) => Math.abs(gap * 10 ** p - Math.round(gap * 10 ** p)) < 1e-6) ?? 8));
  return ((value / size).toFixed(places) + (value ? letter : "")).replace("-", "−");
};
// An exponential moving average without the pull of its start; weight 0 changes nothing.
const smoothed = (values, weight) => {
  if (!values || !weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
};

const curvePlot = (plot) => {
  const data = JSON.parse(byId(`${plot.dataset.chart}-data`).textContent);
  const picture = plot.querySelector(".picture");
  const original = [...picture.childNodes];
  const longest = data.series.reduce((a, b) => (a.steps.length >= b.steps.length ? a : b));
  const whole = data.x;
  let view = whole;
  let weight = 0;
  let shown = data.series;
  let at = longest.steps.length - 1;
  let cross = null;
  let tip = null;
  let chosen = null;  // the range being drawn with the pointer
  const off = (slot) => plot.closest("section")
    .querySelector(`[data-toggle="${slot}"]`)?.getAttribute("aria-pressed") === "false";
  const zoomed = () => view[0] !== whole[0] || view[1] !== whole[1];
  const share = (x) => (x - view[0]) / (view[1] - view[0]);

  // --- drawing again ------------------------------------------------------------------------
  const inView = (steps) => steps.flatMap((step, i) =>
    (step >= view[0] && step <= view[1] ? [i] : []));
  // The ends of the y axis and its ticks; never outside of what the whole curve needs.
  const heights = () => {
    const values = shown.filter((s) => !off(s.slot)).flatMap((s) => inView(s.steps).flatMap(
      (i) => [s.mean, s.low, s.high, ...s.each].filter(Boolean).map((row) => row[i])));
    if (!zoomed() || !values.length) return { low: data.y[0], high: data.y[1], ticks: data.ticks };
    const ticks = niceTicks(Math.min(...values), Math.max(...values));
    const low = Math.max(ticks[0], data.y[0]);
    const high = Math.min(ticks.at(-1), data.y[1]);
    return { low, high, ticks: ticks.filter((t) => t >= low && t <= high) };
  };
  const draw = () => {
    hide();
    if (!zoomed() && !weight) {
      picture.replaceChildren(...original);
      for (const mark of all("[data-slot]", picture)) {
        mark.toggleAttribute("data-off", off(mark.dataset.slot));
      }
      return;
    }
    const { low, high, ticks } = heights();
    const y = (value) => 1 - (value - low) / (high - low);
    picture.replaceChildren(...original.filter((node) => ["title", "desc"].includes(node.nodeName)));
    for (const tick of ticks) {
      const height = `${100 * y(tick)}%`;
      add(picture, "line", { class: "grid", x1: 0, x2: "100%", y1: height, y2: height });
      const place = { class: "tick", x: -8, y: height, dy: ".32em", "text-anchor": "end" };
      add(picture, "text", place, tickText(tick, ticks));
    }
    const steps = niceTicks(...view);
    for (const tick of steps.filter((t) => t >= view[0] && t <= view[1])) {
      const place = { class: "tick", x: `${100 * share(tick)}%`, y: "100%", dy: 18 };
      add(picture, "text", { ...place, "text-anchor": "middle" }, tickText(tick, steps));
    }
    const label = data.unit === "steps" ? "environment steps" : data.unit;
    const below = { class: "axis", x: "50%", y: "100%", dy: 37, "text-anchor": "middle" };
    add(picture, "text", below, label);
    const marks = add(picture, "svg", {
      class: "marks clipped", viewBox: "0 0 1000 1000", preserveAspectRatio: "none",
      width: "100%", height: "100%",
    });
    const points = (x, values) => x.map((step, i) =>
      `${(1000 * share(step)).toFixed(1)} ${(1000 * y(values[i])).toFixed(1)}`);
    const mark = (one, d, classes) => add(marks, "path", {
      d, class: `${classes} ${one.look}`, "data-slot": one.slot, ...(off(one.slot) && { "data-off": "" }),
    });
    for (const one of shown.filter((s) => s.low)) {
      const edge = [...points(one.steps, one.high), ...points(one.steps, one.low).reverse()];
      mark(one, `M${edge.join("L")}Z`, "band");
    }
    shown.forEach((one, i) => {
      if (weight) mark(one, `M${points(one.steps, data.series[i].mean).join("L")}`, "line raw");
      for (const row of one.each) mark(one, `M${points(one.steps, row).join("L")}`, "line each");
      mark(one, `M${points(one.steps, one.mean).join("L")}`, "line");
    });
  };
  const zoom = (low, high) => {
    const least = (whole[1] - whole[0]) / 200;
    if (high - low < least) return;
    view = [Math.max(whole[0], low), Math.min(whole[1], high)];
    plot.toggleAttribute("data-zoomed", zoomed());
    draw();
  };
  const scale = (factor) => {
    const middle = (view[0] + view[1]) / 2;
    const half = factor * (view[1] - view[0]) / 2;
    const from = Math.max(whole[0], Math.min(middle - half, whole[1] - 2 * half));
    zoom(from, from + 2 * half);
  };
  const smooth = (by) => {
    weight = data.unit === "steps" ? by : 0;
    shown = data.series.map((s) => ({
      ...s, mean: smoothed(s.mean, weight), low: smoothed(s.low, weight),
      high: smoothed(s.high, weight), each: s.each.map((row) => smoothed(row, weight)),
    }));
    draw();
  };

  // --- values under the pointer ---------------------------------------------------------------
  const hide = () => { cross?.remove(); tip?.remove(); cross = tip = null; };
  const show = (x) => {
    hide();
    const where = `${100 * share(x)}%`;
    cross = add(picture, "line", { class: "cross", x1: where, x2: where, y1: 0, y2: "100%" });
    tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    const steps = data.unit === "steps";
    const words = steps ? Math.round(x).toLocaleString("en") : shownNumber(x);
    tip.append(steps ? `${words} steps` : `${data.unit}: ${words}`);
    if (weight) tip.append(", smoothed");
    for (const one of shown) {
      if (off(one.slot) || x > one.steps.at(-1)) continue;
      const i = nearest(one.steps, x);
      const row = add(tip, "div", { class: "row" });
      add(row, "i", { class: one.look });
      add(row, "span", {}, one.label);
      const range = one.low ? ` [${shownNumber(one.low[i])}, ${shownNumber(one.high[i])}]` : "";
      add(row, "b", {}, shownNumber(one.mean[i]) + range);
    }
    plot.append(tip);
    const left = picture.getBoundingClientRect().left - plot.getBoundingClientRect().left;
    const here = left + share(x) * picture.getBoundingClientRect().width;
    const room = plot.clientWidth - tip.offsetWidth;
    const beside = here + 14 > room ? here - 14 - tip.offsetWidth : here + 14;
    tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
    tip.style.top = "8px";
  };
  const showIndex = (index) => {
    const there = inView(longest.steps);
    if (!there.length) return;
    at = Math.max(there[0], Math.min(there.at(-1), index));
    show(longest.steps[at]);
  };
  const stepAt = (event) => {
    const box = picture.getBoundingClientRect();
    const part = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
    return view[0] + part * (view[1] - view[0]);
  };

  // --- pointer and keys -----------------------------------------------------------------------
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button")) return;
    chosen = { from: stepAt(event), box: null };
    plot.setPointerCapture?.(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const x = stepAt(event);
    showIndex(nearest(longest.steps, x));
    if (!chosen) return;
    const [low, high] = [chosen.from, x].sort((a, b) => a - b);
    chosen.box ??= add(picture, "rect", { class: "chosen", y: 0, height: "100%" });
    chosen.box.setAttribute("x", `${100 * share(low)}%`);
    chosen.box.setAttribute("width", `${100 * (share(high) - share(low))}%`);
  });
  plot.addEventListener("pointerup", (event) => {
    if (!chosen) return;
    const [low, high] = [chosen.from, stepAt(event)].sort((a, b) => a - b);
    chosen.box?.remove();
    chosen = null;
    if (share(high) - share(low) > 0.02) zoom(low, high);
    else showIndex(nearest(longest.steps, high));
  });
  plot.addEventListener("pointercancel", () => { chosen?.box?.remove(); chosen = null; });
  plot.addEventListener("dblclick", () => zoom(...whole));
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const actions = {
      ArrowLeft: () => showIndex(tip ? at - 1 : at),
      ArrowRight: () => showIndex(tip ? at + 1 : at),
      "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2),
      Escape: () => zoom(...whole),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  });
  return { plot, smooth, scale, reset: () => zoom(...whole), steps: data.unit === "steps", draw };
};
const curves = all(".plot.hover").map(curvePlot);

// --- one slider per part of the page ------------------------------------------------------------
for (const legend of all(".legend:has([data-toggle])")) {
  const section = legend.closest("section");
  const mine = curves.filter((one) => one.steps && section.contains(one.plot));
  if (!mine.length) continue;
  const box = document.createElement("label");
  box.className = "smoothing";
  box.append("Smoothing ");
  const slider = add(box, "input", { type: "range", min: 0, max: 0.95, step: 0.05, value: 0 });
  const shown = add(box, "output", {}, "off");
  const set = () => {
    const weight = Number(slider.value);
    shown.textContent = weight ? weight.toFixed(2) : "off";
    mine.forEach((one) => one.smooth(weight));
  };
  slider.addEventListener("input", set);
  legend.after(box);
  if (hash.has("smooth")) { slider.value = hash.get("smooth"); set(); }
  legend.addEventListener("click", () => mine.forEach((one) => one.draw()));
}
