# Sourced before anything is fetched: uv and npm trust what the machine trusts, as pip does, a company's own authority included.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
    if [ -s "$bundle" ]; then
        export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$bundle}"
        break
    fi
done
