// Episodes that play and step: one player for each `replay-data` of the page.
const CELL = 60;
const AHEAD = 5;

const replayPlayer = (source) => {
  const prefix = source.id.slice(0, -"data".length);
  const part = (name) => byId(prefix + name);
  const replays = JSON.parse(source.textContent);
  const stage = part("stage");
  const slider = part("slider");
  const playButton = part("play");
  const picker = part("select");
  const speed = part("speed");
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
    if (replay.plane) return;
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
  const ringOf = (seat) => CELL * (replay.plane ? replay.plane.players[seat] + 0.15 : 0.42);
  const drawGhosts = () => {
    const row = replay.subgoals?.[frame];
    if (!row) return;
    replay.others.forEach((seat, i) => {
      const colour = `o${(i % 7) + 1}`;
      const [x, y] = middle(row[i]);
      const [fromX, fromY] = middle(replay.players[frame][seat]);
      const missed = replay.hits[frame][i] === null ? " missed" : "";
      add(stage, "line", { class: `${colour} aim`, x1: fromX, y1: fromY, x2: x, y2: y });
      add(stage, "circle", { class: `${colour} ghost${missed}`, cx: x, cy: y, r: ringOf(seat) });
    });
  };
  const drawThings = () => {
    for (const food of replay.foods[frame]) {
      const [x, y] = middle(food);
      const r = CELL * (replay.plane?.thing ?? 0.22);
      add(stage, "circle", { class: replay.plane ? "thing" : "food", cx: x, cy: y, r });
      if (!replay.plane) level(x, y, food[2]);
    }
    replay.players[frame].forEach((player, seat) => {
      if (gone(player)) return;
      const [x, y] = middle(player);
      const r = CELL * (replay.plane?.players[seat] ?? 0.27);
      if (seat === replay.seat) {
        add(stage, "circle", { class: "me", cx: x, cy: y, r });
      } else {
        const colour = `o${(replay.others.indexOf(seat) % 7) + 1}`;
        const shape = { x: x - r, y: y - r, width: 2 * r, height: 2 * r, rx: r / 3 };
        add(stage, "rect", { class: `${colour} body`, ...shape });
      }
      if (!replay.plane) level(x, y, player[2]);
      else if (r > 9) level(x, y, seat + 1).style.fontSize = `${Math.min(18, 1.2 * r)}px`;
    });
  };

  const verdict = () => {
    if (!replay.subgoals) {
      return replay.beliefs ? "Beliefs about the others stand below." : "This agent infers no subgoals.";
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
    const box = part("facts");
    box.replaceChildren();
    const fact = (term, value) => {
      const row = add(box, "div", {});
      add(row, "dt", {}, term);
      add(row, "dd", {}, value);
    };
    fact("Learning agent", `${replay.method} (${replay.agent}), player ${replay.seat + 1}`);
    fact("Opponent", replay.opponent);
    replay.score[frame].forEach((score, seat) => {
      const role = replay.roles[seat] ? `, ${replay.roles[seat]}` : "";
      fact(`Score of player ${seat + 1}${role}${seat === replay.seat ? ", learning" : ""}`,
        String(Math.round(score * 1000) / 1000));
    });
    if (!replay.plane) fact(`${replay.things} left`, String(replay.foods[frame].length));
    if (replay.hits) {
      const made = replay.hits.flat();
      const reached = made.filter((later) => later !== null).length;
      fact("Predictions reached later", `${reached} of ${made.length}`);
    }
  };
  const beliefs = () => {
    const box = part("beliefs");
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
    part("status").textContent = words;
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
    thingWords.textContent = replay.plane ? replay.things.toLowerCase() : levels;
    thingWords.previousElementSibling.firstElementChild.setAttribute(
      "class", replay.plane ? "thing" : "food");
    go(0);
  };

  part("back").addEventListener("click", () => { stop(); go(frame - 1); });
  part("forward").addEventListener("click", () => { stop(); go(frame + 1); });
  playButton.addEventListener("click", play);
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  picker.addEventListener("change", () => choose(Number(picker.value)));
  part("focus").addEventListener("keydown", (event) => {
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
  const thingWords = part("thing-words");
  const levels = thingWords.textContent;
  choose(Number(hash.get("replay") ?? 0));
  if (hash.has("frame")) go(Number(hash.get("frame")));
  if (hash.has("play")) play();
};
all('script[id$="replay-data"]').forEach(replayPlayer);
