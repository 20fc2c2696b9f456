#!/usr/bin/env bash
# Holds gateway.schema.json against a TOML language server that knows nothing of Tollgate: what `check` takes, it takes, by the
# `#:schema` line where there is one; what `check` calls an unknown key, it refuses.
#
#   tests/tidy/schema.sh TAPLO
set -euo pipefail
cd "$(dirname "$0")/../.."
taplo=$1
schema="file://$PWD/gateway.schema.json"

"$taplo" lint gateway.toml
"$taplo" lint --schema "$schema" deploy/*.toml tests/config/valid/*.toml

missed=()
refused=0
for report in $(grep -l '^error\[unknown-key\]' tests/config/invalid/*.report); do
    file=${report%.report}.toml
    if "$taplo" lint --schema "$schema" "$file" >/dev/null 2>&1; then
        missed+=("$file")
    else
        refused=$((refused + 1))
    fi
done
if [ ${#missed[@]} -gt 0 ] || [ "$refused" -eq 0 ]; then
    echo "the schema takes a key that check does not know: ${missed[*]}" >&2
    exit 1
fi
echo "the schema takes every good file, and refused all $refused with unknown keys"
