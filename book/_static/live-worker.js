// The course's own Python for live figures: a request {name, state, action} goes to mgpt.widgets.respond.
import { loadPyodide } from "../pyodide/pyodide.mjs";

const respond = (async () => {
  const python = await loadPyodide({
    indexURL: new URL("../pyodide/", import.meta.url).href,
    packages: ["numpy", "mgpt"],
    env: { LANGUAGE: new URL(self.location.href).searchParams.get("language") ?? "en" },
  });
  python.runPython("import json; from mgpt.widgets import respond");
  return python.runPython("lambda question: json.dumps(respond(**json.loads(question)))");
})();

// A question and its answer are JSON texts, which cross between page, worker and Python at no cost.
onmessage = async ({ data: { id, question } }) => {
  try {
    postMessage({ id, text: (await respond)(question) });
  } catch (error) {
    postMessage({ id, error: String(error.message || error).trim().split("\n").pop() });
  }
};
