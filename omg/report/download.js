// Every chart as SVG, PNG or CSV: the file holds what the page shows, in its present theme.
const SVG = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "opacity", "fill-opacity", "font-family", "font-size", "font-weight",
  "paint-order", "vector-effect", "display", "white-space"];

const plainColour = (words) => words.replace(
  /color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.]+))?\)/g,
  (_, r, g, b, a) => `rgba(${[r, g, b].map((v) => Math.round(255 * v)).join(", ")}, ${a ?? 1})`);
// A copy that needs no style sheet.
const painted = (node) => {
  const copy = node.cloneNode(true);
  const copies = [copy, ...all("*", copy)];
  [node, ...all("*", node)].forEach((one, i) => {
    const style = getComputedStyle(one);
    const words = PAINT.map((name) => `${name}:${plainColour(style.getPropertyValue(name))}`);
    copies[i].setAttribute("style", words.join(";"));
    for (const name of ["class", "role", "aria-labelledby", "id"]) copies[i].removeAttribute(name);
  });
  return copy;
};
const sheet = (width, height, title) => {
  const style = getComputedStyle(document.body);
  const picture = document.createElementNS(SVG, "svg");
  const size = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": style.fontFamily };
  for (const [key, value] of Object.entries(size)) picture.setAttribute(key, value);
  const card = getComputedStyle(document.querySelector("section")).backgroundColor;
  add(picture, "rect", { width, height, fill: card });
  const head = { x: 12, y: 22, "font-size": 15, "font-weight": 600, fill: style.color };
  add(picture, "text", head, title);
  return picture;
};
const chartPicture = (plot, data) => {
  const box = plot.getBoundingClientRect();
  const original = plot.querySelector(".picture");
  const inner = original.getBoundingClientRect();
  const ink = getComputedStyle(document.body).color;
  const items = (data.series ?? []).filter((one) =>
    !original.querySelector(`[data-slot="${one.slot}"][data-off]`));
  const places = [];
  let [x, y] = [12, 0];
  for (const one of items) {
    const width = 44 + 7.5 * one.label.length;
    if (x + width > box.width && x > 12) [x, y] = [12, y + 20];
    places.push([x, y]);
    x += width;
  }
  const top = 34;
  const rows = items.length ? y + 26 : 0;
  const picture = sheet(Math.ceil(box.width), Math.ceil(top + box.height + rows), data.title);
  const copy = painted(original);
  const area = { x: inner.left - box.left, y: top + inner.top - box.top, width: inner.width,
    height: inner.height, overflow: "visible" };
  for (const [key, value] of Object.entries(area)) copy.setAttribute(key, value);
  all("svg", original).forEach((one, i) => all("svg", copy)[i].setAttribute(
    "overflow", getComputedStyle(one).overflow));
  picture.append(copy);
  items.forEach((one, i) => {
    const [left, down] = [places[i][0], top + box.height + 10 + places[i][1]];
    const probe = add(original, "line", { class: `line ${one.look}` });
    const line = painted(probe);
    probe.remove();
    const ends = { x1: left, x2: left + 22, y1: down, y2: down };
    for (const [key, value] of Object.entries(ends)) line.setAttribute(key, value);
    picture.append(line);
    add(picture, "text", { x: left + 28, y: down + 4, "font-size": 12, fill: ink }, one.label);
  });
  return picture;
};
const tablePicture = (table, title) => {
  const box = table.getBoundingClientRect();
  const picture = sheet(Math.ceil(box.width + 24), Math.ceil(box.height + 46), title);
  for (const cell of all("th, td", table)) {
    const place = cell.getBoundingClientRect();
    if (!place.width) continue;
    const style = getComputedStyle(cell);
    const [x, y] = [place.left - box.left + 12, place.top - box.top + 34];
    const spot = { x, y, width: place.width, height: place.height, rx: 4 };
    if (cell.matches("td[style]")) {
      add(picture, "rect", { ...spot, fill: plainColour(style.backgroundColor) });
    }
    const upright = style.writingMode !== "horizontal-tb";
    const left = cell.matches("th") && style.textAlign !== "center" && !upright;
    const [right, down] = [left ? x : x + place.width / 2, y + place.height / 2];
    const size = parseFloat(style.fontSize);
    const narrow = !left && !upright && 0.6 * size * cell.textContent.length > place.width;
    const lines = narrow ? cell.textContent.split(" ") : [cell.textContent];
    const words = add(picture, "text", {
      "text-anchor": left ? "start" : "middle", fill: style.color, "font-size": size,
      "font-weight": style.fontWeight,
      ...(upright && { transform: `rotate(-90 ${right} ${down})` }),
    });
    lines.forEach((line, i) => add(words, "tspan", {
      x: right, y: down + size * (0.34 + 1.1 * (i - (lines.length - 1) / 2)),
    }, line));
  }
  return picture;
};

// --- numbers --------------------------------------------------------------------------------------
const csv = (rows) => rows.map((row) => row.map((value) => {
  const words = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
}).join(",")).join("\n") + "\n";
const chartRows = (data) => {
  if (data.columns) return [data.columns, ...data.rows];
  const most = Math.max(...data.series.map((one) => one.each.length));
  const each = [...Array(most).keys()];
  const head = [data.unit, "label", "seeds", "mean", "low", "high", ...each.map((i) => `seed_${i + 1}`)];
  const rows = data.series.flatMap((one) => one.steps.map((step, i) => [step, one.label, one.seeds,
    one.mean[i], one.low?.[i], one.high?.[i], ...each.map((k) => one.each[k]?.[i])]));
  return [head, ...rows];
};
const tableRows = (table) => all("tr", table).map((row) => [...row.cells].flatMap((cell) =>
  [cell.textContent.replace("−", "-"), ...Array(cell.colSpan - 1).fill("")]));

// --- files ----------------------------------------------------------------------------------------
const save = (content, type, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const svgText = (picture) => new XMLSerializer().serializeToString(picture);
const savePng = async (picture, name) => {
  const scale = 2;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(picture))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = scale * picture.getAttribute("width");
  canvas.height = scale * picture.getAttribute("height");
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => save(blob, "image/png", name));
};
const tools = (title, actions) => {
  const bar = document.createElement("div");
  bar.className = "tools";
  for (const [words, label, run] of actions) {
    const button = add(bar, "button", { type: "button", "aria-label": `${label}: ${title}` }, words);
    button.title = label;
    if (words === "Whole") button.className = "whole";
    button.addEventListener("click", run);
  }
  return bar;
};
const downloads = (name, drawn, rows) => [
  ["SVG", "Save as SVG", () => save(svgText(drawn()), "image/svg+xml", `${name}.svg`)],
  ["PNG", "Save as PNG", () => savePng(drawn(), `${name}.png`)],
  ["CSV", "Save the numbers as CSV", () => save(csv(rows()), "text/csv", `${name}.csv`)],
];
for (const plot of all(".plot[data-chart]")) {
  const name = plot.dataset.chart;
  const data = JSON.parse(byId(`${name}-data`).textContent);
  const curve = curves.find((one) => one.plot === plot);
  const zooms = curve ? [
    ["+", "Zoom in", () => curve.scale(0.5)],
    ["−", "Zoom out", () => curve.scale(2)],
    ["Whole", "Show the whole curve", curve.reset],
  ] : [];
  const drawn = () => chartPicture(plot, data);
  plot.after(tools(data.title, [...zooms, ...downloads(name, drawn, () => chartRows(data))]));
}
for (const table of all("table.heat[data-chart]")) {
  const name = table.dataset.chart;
  const title = table.caption.textContent;
  const drawn = () => tablePicture(table, title);
  table.parentElement.after(tools(title, downloads(name, drawn, () => tableRows(table))));
}
