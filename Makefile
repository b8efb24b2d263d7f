# A thin face over the README's commands.  Prerequisites: Python >= 3.11 with venv, and make.
PYTHON ?= python3
PY := .venv/bin/python
# One BLAS thread: the course's arrays are small, and its measurements are taken with one.
export OPENBLAS_NUM_THREADS ?= 1
export IPYTHONDIR := $(CURDIR)/.jupyter/ipython

.PHONY: help env book serve lab test test-browser bench bench-grade oracles release gettext clean
help:
	@echo "make env | book | serve | lab | test | test-browser | bench | bench-grade | oracles | release | gettext | clean   (README.md says more)"

env: .venv/installed
.venv/installed: requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.11 or newer, or say make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv; install it (Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Strict: any warning of the build is an error, and all of them are shown before it stops.  Nothing where nothing changed.
book: env
	$(PY) tools/book.py

serve: book
	$(PY) -m http.server --directory _build/html --bind 127.0.0.1 8000

lab: env
	JUPYTER_CONFIG_DIR=.jupyter $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/exercises

test: book
	$(PY) -m pytest

# The site in Debian's Chromium: console, other hosts, axe, live figures, an exercise in JupyterLite.
test-browser: book
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "make: chromium is missing; install it (Debian: apt-get install chromium)"; exit 1; }
	$(PY) -m pytest tests/browser

bench: env
	$(PY) tools/bench.py

bench-grade: env
	$(PY) tools/bench_grade.py

# Oracles: PyTorch, transformers, onnx and gguf live in an environment of their own.
oracles: .venv-oracles/installed
	.venv-oracles/bin/python -m pytest tests/oracles
.venv-oracles/installed: tools/oracles.txt pyproject.toml
	$(PYTHON) -m venv .venv-oracles
	.venv-oracles/bin/python -m pip install --quiet --disable-pip-version-check -r tools/oracles.txt
	.venv-oracles/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# Catalogues for a translated edition: of the pages (Sphinx) and of the sentences in code.
# Sphinx refuses what another builder has read, so each begins anew; outputs of notebooks stay in their own cache.
gettext: env
	rm -rf _build/.doctrees
	.venv/bin/jupyter-book build . --builder custom --custom-builder gettext --quiet
	rm -rf _build/.doctrees
	$(PY) tools/catalogue.py _build/gettext/mgpt.pot

# An edition in another language, from the same pages and its own catalogues: make book-zh_CN
book-%: env
	sed 's/^  config:$$/&\n    language: $*/' _config.yml > _config.$*.yml
	.venv/bin/jupyter-book build . --config _config.$*.yml --path-output _build/$* -W --keep-going --quiet

release: env
	$(PY) -m mgpt release

clean:
	rm -rf _build .venv .venv-oracles *.egg-info
