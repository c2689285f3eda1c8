"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const hash = new URLSearchParams(location.hash.slice(1));

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

  // --- values of a curve under the pointer ----------------------------------------------------
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
  const add = (parent, name, attributes, text) => {
    const node = document.createElementNS(parent.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  for (const plot of all(".plot.hover")) {
    const data = JSON.parse(byId(`${plot.dataset.chart}-data`).textContent);
    const picture = plot.querySelector(".picture");
    const longest = data.series.reduce((a, b) => (a.steps.length >= b.steps.length ? a : b));
    let cross = null;
    let tip = null;
    let at = longest.steps.length - 1;
    const hide = () => { cross?.remove(); tip?.remove(); cross = tip = null; };
    const show = (x) => {
      const section = plot.closest("section");
      const off = (slot) =>
        section.querySelector(`[data-toggle="${slot}"]`)?.getAttribute("aria-pressed") === "false";
      const share = (x - data.x[0]) / (data.x[1] - data.x[0]);
      hide();
      cross = add(picture, "line", {
        class: "cross", x1: `${100 * share}%`, x2: `${100 * share}%`, y1: "0", y2: "100%",
      });
      tip = document.createElement("div");
      tip.className = "tip";
      tip.setAttribute("role", "status");
      const steps = data.unit === "steps";
      const where = steps ? Math.round(x).toLocaleString("en") : shownNumber(x);
      tip.append(steps ? `${where} steps` : `${data.unit}: ${where}`);
      for (const one of data.series) {
        if (off(one.slot) || x > one.steps.at(-1)) continue;
        const i = nearest(one.steps, x);
        const row = add(tip, "div", { class: "row" });
        add(row, "i", { class: `c${one.slot % 8}` });
        add(row, "span", {}, one.label);
        const range = one.low ? ` [${shownNumber(one.low[i])}, ${shownNumber(one.high[i])}]` : "";
        add(row, "b", {}, shownNumber(one.mean[i]) + range);
      }
      plot.append(tip);
      const left = picture.getBoundingClientRect().left - plot.getBoundingClientRect().left;
      const here = left + share * picture.getBoundingClientRect().width;
      const room = plot.clientWidth - tip.offsetWidth;
      const beside = here + 14 > room ? here - 14 - tip.offsetWidth : here + 14;
      tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
      tip.style.top = "8px";
    };
    const showIndex = (index) => {
      at = Math.max(0, Math.min(longest.steps.length - 1, index));
      show(longest.steps[at]);
    };
    plot.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
      showIndex(nearest(longest.steps, data.x[0] + share * (data.x[1] - data.x[0])));
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      showIndex(tip ? at + step : at);
    });
  }

  // --- replays ------------------------------------------------------------------------------
  const source = byId("replay-data");
  if (!source) return;
  const replays = JSON.parse(source.textContent);
  const stage = byId("replay-stage");
  const slider = byId("replay-slider");
  const playButton = byId("replay-play");
  const picker = byId("replay-select");
  const speed = byId("replay-speed");
  const CELL = 60;
  const AHEAD = 5;
  let replay = replays[0];
  let frame = 0;
  let timer = null;

  const last = () => replay.players.length - 1;
  const middle = ([row, col]) => [(col + 0.5) * CELL, (row + 0.5) * CELL];
  const points = (places) => places.map((place) => middle(place).join(",")).join(" ");
  const gone = (player) => player[2] === 0;  // has left the game
  const track = (seat, from, to) =>
    replay.players.slice(Math.max(0, from), to + 1).map((players) => players[seat])
      .filter((player) => !gone(player));
  const level = (x, y, words) =>
    add(stage, "text", { class: "level", x, y }, words);

  const drawBoard = () => {
    const [rows, cols] = replay.size;
    stage.setAttribute("viewBox", `-2 -2 ${cols * CELL + 4} ${rows * CELL + 4}`);
    stage.replaceChildren();
    const size = { x: 0, y: 0, width: cols * CELL, height: rows * CELL, rx: 6 };
    add(stage, "rect", { class: "board-ground", ...size });
    for (let row = 0; row < rows; row += 1) {
      for (let col = (row + 1) % 2; col < cols; col += 2) {
        const spot = { x: col * CELL, y: row * CELL, width: CELL, height: CELL };
        add(stage, "rect", { class: "board-check", ...spot });
      }
    }
  };
  const drawPaths = () => {
    add(stage, "polyline", { class: "mine", points: points(track(replay.seat, 0, frame)) });
    replay.others.forEach((seat, i) => {
      const colour = `o${(i % 7) + 1}`;
      add(stage, "polyline", { class: `${colour} past`, points: points(track(seat, 0, frame)) });
      const next = points(track(seat, frame, frame + AHEAD));
      add(stage, "polyline", { class: `${colour} future`, points: next });
    });
  };
  const drawGhosts = () => {
    const row = replay.subgoals?.[frame];
    if (!row) return;
    replay.others.forEach((seat, i) => {
      const colour = `o${(i % 7) + 1}`;
      const [x, y] = middle(row[i]);
      const [fromX, fromY] = middle(replay.players[frame][seat]);
      const missed = replay.hits[frame][i] === null ? " missed" : "";
      add(stage, "line", { class: `${colour} aim`, x1: fromX, y1: fromY, x2: x, y2: y });
      add(stage, "circle", { class: `${colour} ghost${missed}`, cx: x, cy: y, r: CELL * 0.42 });
    });
  };
  const drawThings = () => {
    for (const food of replay.foods[frame]) {
      const [x, y] = middle(food);
      add(stage, "circle", { class: "food", cx: x, cy: y, r: CELL * 0.22 });
      level(x, y, food[2]);
    }
    replay.players[frame].forEach((player, seat) => {
      if (gone(player)) return;
      const [x, y] = middle(player);
      const r = CELL * 0.27;
      if (seat === replay.seat) {
        add(stage, "circle", { class: "me", cx: x, cy: y, r });
      } else {
        const colour = `o${(replay.others.indexOf(seat) % 7) + 1}`;
        const shape = { x: x - r, y: y - r, width: 2 * r, height: 2 * r, rx: 7 };
        add(stage, "rect", { class: `${colour} body`, ...shape });
      }
      level(x, y, player[2]);
    });
  };

  const verdict = () => {
    if (!replay.subgoals) {
      return replay.beliefs ? "Beliefs about goals stand below." : "This agent infers no subgoals.";
    }
    const row = replay.hits[frame];
    if (!row) return "The episode is over.";
    return row.map((later, i) => {
      const who = row.length > 1 ? ` for player ${replay.others[i] + 1}` : "";
      const steps = later === 1 ? "1 step" : `${later} steps`;
      return `Prediction${who} ${later === null ? "never reached" : `reached ${steps} later`}.`;
    }).join(" ");
  };
  const facts = () => {
    const box = byId("replay-facts");
    box.replaceChildren();
    const fact = (term, value) => {
      const row = add(box, "div", {});
      add(row, "dt", {}, term);
      add(row, "dd", {}, value);
    };
    fact("Learning agent", `${replay.method} (${replay.agent}), player ${replay.seat + 1}`);
    fact("Opponent", replay.opponent);
    replay.score[frame].forEach((score, seat) => {
      fact(`Score of player ${seat + 1}${seat === replay.seat ? ", learning" : ""}`,
        String(Math.round(score * 1000) / 1000));
    });
    fact(`${replay.things} left`, String(replay.foods[frame].length));
    if (replay.hits) {
      const made = replay.hits.flat();
      const reached = made.filter((later) => later !== null).length;
      fact("Predictions reached later", `${reached} of ${made.length}`);
    }
  };
  const beliefs = () => {
    const box = byId("replay-beliefs");
    box.replaceChildren();
    const rows = replay.beliefs?.[frame] ?? replay.predictions?.[frame];
    if (!rows) return;
    replay.others.forEach((seat, i) => {
      if (gone(replay.players[frame][seat])) return;
      const expected = replay.predictions?.[frame][i] ?? [];
      const best = expected.indexOf(Math.max(...expected));
      const did = replay.actions[frame]?.[seat];
      const next = best < 0 ? "" : `: action ${best} expected, ${did} taken`;
      add(box, "h4", {}, `Player ${seat + 1}${next}`);
      (replay.beliefs?.[frame][i] ?? []).forEach((share, goal) => {
        const line = add(box, "div", { class: `belief o${(i % 7) + 1}` });
        add(line, "span", {}, replay.goals[goal]);
        const bar = add(line, "i", { role: "img", "aria-label": `${Math.round(100 * share)} %` });
        bar.style.setProperty("--share", `${100 * share}%`);
        add(line, "b", {}, `${Math.round(100 * share)} %`);
      });
    });
  };
  const draw = () => {
    drawBoard();
    drawPaths();
    drawGhosts();
    drawThings();
    slider.max = String(last());
    slider.value = String(frame);
    slider.setAttribute("aria-valuetext", `step ${frame} of ${last()}`);
    const words = `Step ${frame} of ${last()}. ${verdict()}`;
    byId("replay-status").textContent = words;
    stage.setAttribute("aria-label", `Board. ${words}`);
    facts();
    beliefs();
  };
  const go = (to) => {
    frame = Math.max(0, Math.min(last(), to));
    draw();
  };
  const stop = () => {
    clearTimeout(timer);
    timer = null;
    playButton.textContent = "Play";
    playButton.setAttribute("aria-pressed", "false");
  };
  const tick = () => {
    if (frame >= last()) { stop(); return; }
    go(frame + 1);
    timer = setTimeout(tick, 600 / Number(speed.value));
  };
  const play = () => {
    if (timer) { stop(); return; }
    if (frame >= last()) go(0);
    playButton.textContent = "Pause";
    playButton.setAttribute("aria-pressed", "true");
    timer = setTimeout(tick, 600 / Number(speed.value));
  };
  const choose = (index) => {
    stop();
    replay = replays[index] ?? replays[0];
    picker.value = String(replays.indexOf(replay));
    go(0);
  };

  byId("replay-back").addEventListener("click", () => { stop(); go(frame - 1); });
  byId("replay-forward").addEventListener("click", () => { stop(); go(frame + 1); });
  playButton.addEventListener("click", play);
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  picker.addEventListener("change", () => choose(Number(picker.value)));
  byId("replay-focus").addEventListener("keydown", (event) => {
    const actions = {
      ArrowLeft: () => { stop(); go(frame - 1); },
      ArrowRight: () => { stop(); go(frame + 1); },
      Home: () => { stop(); go(0); },
      End: () => { stop(); go(last()); },
      " ": play,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
  choose(Number(hash.get("replay") ?? 0));
  if (hash.has("frame")) go(Number(hash.get("frame")));
  if (hash.has("play")) play();
})();
