#!/bin/sh
# Resolve requirements.lock anew: one hashed file for Python 3.11 to 3.14.  Usage: tools/relock.sh  (needs uv)
# The build backend is locked too, so that installing the course itself needs no second resolution.
set -eu
cd "$(dirname "$0")/.."
echo 'setuptools>=77' | uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command "tools/relock.sh" --extra book --extra lab --extra grade --extra lite --extra dask \
  --extra test --extra hf \
  pyproject.toml - -o requirements.lock
