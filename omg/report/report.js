// What all parts of the page share: helpers, theme, tabs, legends.
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);
const hash = new URLSearchParams(location.hash.slice(1));
const add = (parent, name, attributes = {}, text = undefined) => {
  const node = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
};

// --- light and dark -----------------------------------------------------------------------
const root = document.documentElement;
const themeButton = byId("theme");
const isDark = () =>
  root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
const showTheme = (theme) => {
  if (theme) root.dataset.theme = theme;
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-pressed", String(isDark()));
};
showTheme(["light", "dark"].includes(hash.get("theme")) ? hash.get("theme") : "");
themeButton.addEventListener("click", () => showTheme(isDark() ? "light" : "dark"));

// --- tabs ---------------------------------------------------------------------------------
for (const box of all(".tabs")) {
  const buttons = all(":scope > .tablist > button", box);
  const panels = all(":scope > .panel", box);
  const show = (index) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === index));
      button.tabIndex = i === index ? 0 : -1;
    });
    panels.forEach((panel, i) => { panel.hidden = i !== index; });
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", () => show(i));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (i + step + buttons.length) % buttons.length;
      show(next);
      buttons[next].focus();
    });
  });
  show(0);
}
addEventListener("beforeprint", () => all(".panel").forEach((p) => { p.hidden = false; }));

// --- legends hide methods -----------------------------------------------------------------
for (const button of all("[data-toggle]")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(shown));
    const marks = all(`[data-slot="${button.dataset.toggle}"]`, button.closest("section"));
    marks.forEach((mark) => mark.toggleAttribute("data-off", !shown));
  });
}
