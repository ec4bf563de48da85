#!/bin/sh
# Installs this kit into a new folder: sh install.sh FOLDER. README.txt says more.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^ *"python": "\(.*\)",*$/\1/p' "$here/kit.json")
for python in ${PYTHON:-"python$version" python3}; do
    if "$python" -c "" >/dev/null 2>&1; then
        exec "$python" -I "$here/install.py" "$@"
    fi
done
echo "install.sh: there is no ${PYTHON:-python$version} here: install it, or name it with PYTHON=/path/to/python$version" >&2
exit 2
