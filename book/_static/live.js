// One client for every live figure.  It knows nothing of what a figure shows: it sends the inputs' values to Python
// (live-worker.js), puts the answer where the old one was, and keeps the state in the page's address.
(() => {
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const sections = [...document.querySelectorAll("section.mgpt-control")];
  const waiting = new Map();
  const known = new Map(); // request -> answer: the same question has the same answer
  const KNOWN = 400; // of some ten kilobytes each
  let worker = null;
  let requests = 0;

  function ask(request) {
    const question = JSON.stringify(request);
    if (known.has(question)) return Promise.resolve(known.get(question));
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
      waiting.set(id, ({ text, error, lost }) => {
        waiting.delete(id);
        const told = { answer: text && JSON.parse(text), error, lost };
        if (text) known.set(question, told);
        if (known.size > KNOWN) known.delete(known.keys().next().value);
        resolve(told);
      });
      worker.postMessage({ id, question });
    });
  }

  // While the reader looks at an answer, Python answers what may be asked next; whatever is touched goes first.
  let ahead = 0;
  async function lookAhead(questions) {
    const mine = ++ahead;
    await new Promise((resolve) => setTimeout(resolve, 150));
    for (const question of questions) {
      if (mine !== ahead || !(await ask(question)).answer) return;
    }
  }

  // The address: #name?input=value&…, one control after another, split by ";".
  const live = {};
  let writing = 0;
  function writeAddress() { // once after a row of changes: browsers are slow at it
    clearTimeout(writing);
    writing = setTimeout(writeAddressNow, 200);
  }
  function writeAddressNow() {
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

  // Put an answer where the old one is.  A frame that stays the same stays in the page, as far as it was scrolled.
  function place(view, html) {
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    const news = [...fresh.content.children];
    const olds = [...view.children];
    if (news.length !== olds.length) return view.replaceChildren(fresh.content);
    news.forEach((item, index) => {
      const old = olds[index];
      if (item.isEqualNode(old)) return;
      const framed = item.matches("div") && item.cloneNode().isEqualNode(old.cloneNode());
      if (framed) old.replaceChildren(...item.childNodes);
      else old.replaceWith(item);
    });
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
      const late = setTimeout(() => section.classList.add("mgpt-late"), 150); // no flicker where the answer is quick
      if (!now) now = (await ask({ name, state: {} })).answer?.state ?? null; // what undo goes back to
      const { answer, error, lost } = await ask({ name, state: { ...now, ...state }, action });
      clearTimeout(late);
      if (turn !== newest) return false; // a later change is on its way
      section.removeAttribute("aria-busy");
      section.classList.remove("mgpt-late");
      const failure = lost ? note.dataset.lost : error;
      note.textContent = failure ? note.dataset.failed.replace("{error}", failure) : "";
      if (failure) return false;
      const moved = JSON.stringify(answer.state) !== JSON.stringify(now);
      if (remember && moved) past.push(now);
      now = live[name] = answer.state;
      place(view, answer.html);
      if (!playing) speak();
      for (const [key, item] of Object.entries(fields)) {
        const typing = item === document.activeElement && remember && !action;
        if (!typing && String(now[key]) !== item.value) item.value = now[key];
      }
      undo.disabled = past.length === 0;
      writeAddress();
      lookAhead(likely(action));
      return moved;
    }

    // Requests that are likely next, likeliest first: the button again, each number up or down, other buttons and choices.
    let touched = "";
    function* likely(action) {
      const state = { ...now, ...inputs() };
      const buttons = [...form.querySelectorAll("[data-action]")].map((button) => button.dataset.action);
      const items = Object.values(fields);
      for (const again of buttons.filter((one) => one === action)) yield { name, state, action: again };
      for (const item of [...items.filter((one) => one.name === touched), ...items.filter((one) => one.name !== touched)]) {
        for (const value of neighbours(item)) yield { name, state: { ...state, [item.name]: value }, action: null };
      }
      for (const other of buttons) yield { name, state, action: other };
    }
    function neighbours(item) {
      if (item.options) return [...item.options].map((option) => option.value).filter((value) => value !== item.value);
      if (item.type !== "number" || !item.validity.valid) return [];
      return ["stepUp", "stepDown"].map((step) => {
        const twin = item.cloneNode();
        twin.value = item.value;
        twin[step]();
        return twin.value;
      }).filter((value) => value !== item.value);
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
    form.addEventListener("input", (event) => { touched = event.target.name; stopPlay(); show(inputs()); });
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
