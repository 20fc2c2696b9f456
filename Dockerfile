# syntax=docker/dockerfile:1
# One static binary on an empty image: no shell, no package manager, nothing to keep patched but the gateway.

FROM rust:1.95-alpine AS build
# A C compiler and headers, for the allocator and for the cryptography behind tokens; bash, Python, Redis, OpenSSL and llvm-tools to train the build.
# Alpine keeps one version per release: pinning it would break the build.
# hadolint ignore=DL3018
RUN apk add --no-cache musl-dev gcc linux-headers bash python3 redis openssl ca-certificates \
    && rustup component add llvm-tools
WORKDIR /build
COPY . .
# Rust's own target here is musl, linked statically: the profile is made from that very build.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    deploy/build/release --output /tollgate
# Only the container itself reaches its loopback: the demo listens on all its addresses instead.
RUN sed 's/"127\.0\.0\.1:8080"/":8080"/' gateway.toml > /gateway.toml \
    && /tollgate check /gateway.toml \
    && mkdir -m 700 /state

FROM scratch
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tollgate" \
      org.opencontainers.image.description="A reverse-proxy gateway with built-in distributed rate limiting" \
      org.opencontainers.image.licenses="Apache-2.0 OR MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /tollgate /tollgate
# The demo, until a folder with a gateway.toml of your own is mounted here. Mount the folder, not the file: a file
# that is mounted alone never changes under the gateway, so it could not be reloaded.
COPY --from=build /gateway.toml /etc/tollgate/gateway.toml
# The authorities by which servers are known that certificates are ordered from, and a folder for what comes: a volume that is
# mounted there belongs to the gateway's user.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /state /var/lib/tollgate
# A user without a name: there is no /etc/passwd.
USER 65532:65532
EXPOSE 8080 9090
# SIGTERM drains: accept no more, finish what was begun, leave.
STOPSIGNAL SIGTERM
# No HEALTHCHECK: it would need an HTTP client in the image. Let the orchestrator ask /readyz and /healthz
# on the admin listener.
ENTRYPOINT ["/tollgate"]
CMD ["run", "--config", "/etc/tollgate/gateway.toml"]
