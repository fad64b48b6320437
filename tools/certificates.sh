# Sourced before downloads: uv and npm trust the machine's certificates, as pip does, including those of a company.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
    if [ -s "$bundle" ]; then
        export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$bundle}"
        break
    fi
done
