// One client for every live figure.  It knows nothing of what a figure shows: it sends the inputs' values to Python
// (live-worker.js), puts the answer where the old one was, and keeps the state in the page's address.
(() => {
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const sections = [...document.querySelectorAll("section.mgpt-control")];
  const waiting = new Map();
  let worker = null;
  let requests = 0;

  function ask(request) {
    if (!worker) {
      const script = new URL("_static/live-worker.js", root);
      script.searchParams.set("language", document.documentElement.lang.replace("-", "_"));
      worker = new Worker(script, { type: "module" });
      worker.onmessage = ({ data }) => waiting.get(data.id)(data);
      worker.onerror = () => {
        waiting.forEach((done) => done({ lost: true }));
        worker = null; // the next touch tries again
      };
    }
    const id = ++requests;
    return new Promise((resolve) => {
      waiting.set(id, (data) => { waiting.delete(id); resolve(data); });
      worker.postMessage({ id, request });
    });
  }

  // The address: #name?input=value&…, one control after another, split by ";".
  const live = {};
  function writeAddress() {
    const parts = Object.entries(live).map(([name, state]) => name + "?" + new URLSearchParams(Object.entries(state)
      .map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)])));
    history.replaceState(null, "", parts.length ? "#" + parts.join(";") : location.pathname + location.search);
  }

  function stateOfAddress(name, fields) {
    const part = location.hash.slice(1).split(";").find((text) => text.startsWith(name + "?"));
    if (!part) return null;
    const state = {};
    for (const [key, value] of new URLSearchParams(part.slice(name.length + 1))) {
      try { state[key] = key in fields ? value : JSON.parse(value); } catch { state[key] = value; }
    }
    return state;
  }

  function start(section) {
    const name = section.dataset.control;
    const form = section.querySelector("form");
    const view = section.querySelector(".mgpt-view");
    const note = section.querySelector(".mgpt-note");
    const said = section.querySelector(".mgpt-said");
    const fields = Object.fromEntries([...form.elements].filter((item) => item.name).map((item) => [item.name, item]));
    const undo = form.querySelector("[data-undo]");
    const play = form.querySelector("[data-play]");
    const past = [];
    let now = null; // the whole state as Python gave it last
    let newest = 0;
    let playing = null; // the play that goes on, if any

    const inputs = () => Object.fromEntries(Object.entries(fields).map(([key, item]) => [key, item.value]));

    async function show(state, action = null, remember = true) {
      const turn = ++newest;
      if (!now) note.textContent = note.dataset.starting;
      section.setAttribute("aria-busy", "true");
      if (!now) now = (await ask({ name, state: {} })).answer?.state ?? null; // what undo goes back to
      const { answer, error, lost } = await ask({ name, state: { ...now, ...state }, action });
      if (turn !== newest) return false; // a later change is on its way
      section.removeAttribute("aria-busy");
      const failure = lost ? note.dataset.lost : error;
      note.textContent = failure ? note.dataset.failed.replace("{error}", failure) : "";
      if (failure) return false;
      const moved = JSON.stringify(answer.state) !== JSON.stringify(now);
      if (remember && moved) past.push(now);
      now = live[name] = answer.state;
      view.innerHTML = answer.html;
      if (!playing) speak();
      for (const [key, item] of Object.entries(fields)) {
        const typing = item === document.activeElement && remember && !action;
        if (!typing && String(now[key]) !== item.value) item.value = now[key];
      }
      undo.disabled = past.length === 0;
      writeAddress();
      return moved;
    }

    const speak = () => { said.textContent = view.querySelector(".mgpt-sentence")?.textContent ?? ""; };

    // Play repeats an action until it changes nothing or something is touched; one undo takes all of it back.  A screen
    // reader hears where it ends, not every beat; who wants no motion gets the end at once.
    async function startPlay() {
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (still) return show(inputs(), "play-all");
      const mine = playing = {};
      play.setAttribute("aria-pressed", "true");
      view.setAttribute("aria-busy", "true");
      let moved = await show(inputs(), "play");
      while (moved && playing === mine) {
        await new Promise((resolve) => setTimeout(resolve, 1000));
        moved = playing === mine && await show(inputs(), play.dataset.play, false);
      }
      if (playing === mine) stopPlay();
    }
    function stopPlay() {
      if (!playing) return;
      playing = null;
      play.setAttribute("aria-pressed", "false");
      view.removeAttribute("aria-busy");
      speak();
    }

    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { stopPlay(); show(inputs()); });
    form.addEventListener("focusin", () => { if (!now && !newest) show({}); });
    form.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const played = playing;
      stopPlay();
      if (button === play) { if (!played) startPlay(); }
      else if (button.dataset.action) show(inputs(), button.dataset.action);
      else if (button === undo) { if (past.length) show(past.pop(), null, false); }
      else if ("reset" in button.dataset) reset();
    });
    async function reset() {
      const { answer } = await ask({ name, state: {} });
      if (answer) { await show(answer.state); for (const key in fields) fields[key].value = answer.state[key]; }
      delete live[name];
      writeAddress();
    }
    form.querySelectorAll("button").forEach((button) => { button.disabled = button === undo; });
    note.textContent = note.dataset.ready;
    const given = stateOfAddress(name, fields);
    if (given) {
      for (const [key, item] of Object.entries(fields)) if (key in given) item.value = given[key];
      show(given);
      section.scrollIntoView({ block: "nearest" });
    }
  }

  // A page opened as a file may start no worker; the note in the page says what to do instead.
  if (location.protocol.startsWith("http") && window.Worker) sections.forEach(start);
})();
