// The course's own Python for live figures: a request {name, state, action} goes to mgpt.widgets.respond.
import { loadPyodide } from "../pyodide/pyodide.mjs";

const respond = (async () => {
  const python = await loadPyodide({
    indexURL: new URL("../pyodide/", import.meta.url).href,
    packages: ["numpy", "mgpt"],
    env: { LANGUAGE: new URL(self.location.href).searchParams.get("language") ?? "en" },
  });
  python.runPython("import json; from mgpt.widgets import respond");
  return python.runPython("lambda request: json.dumps(respond(**json.loads(request)))");
})();

onmessage = async ({ data: { id, request } }) => {
  try {
    postMessage({ id, answer: JSON.parse((await respond)(JSON.stringify(request))) });
  } catch (error) {
    postMessage({ id, error: String(error.message || error).trim().split("\n").pop() });
  }
};
