# A static k6 with this extension, in an image that holds nothing else.
#
#   docker build -t xk6-safeqps .
#   docker run --rm --network host -v "$PWD/examples:/test:ro" -v "$PWD/results:/results" \
#     xk6-safeqps run --out llm=/results/one /test/replay.js
#
# The user is 12345, as in k6's own image: /results has to be writable for it.
# The target `shell` is the same with a shell in it, for what k6-operator does in one: its initializer, and scripts that
# lie in the image (docs/k6-operator.md).
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
# .git is in the build's context on purpose: the version that every run records comes from it.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go-build \
    GOCACHE=/go-build CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags '-s -w' -o /out/k6 ./cmd/k6
RUN mkdir -p /empty

FROM busybox:1.37-musl AS shell
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/k6 /usr/bin/k6
COPY --from=build --chown=12345:12345 /empty /home/k6
COPY --from=build --chown=12345:12345 /empty /results
ENV HOME=/home/k6
USER 12345:12345
WORKDIR /home/k6
ENTRYPOINT ["k6"]

FROM scratch AS release
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/k6 /usr/bin/k6
COPY --from=build --chown=12345:12345 /empty /home/k6
COPY --from=build --chown=12345:12345 /empty /results
# k6-operator starts `k6` by name.
ENV PATH=/usr/bin HOME=/home/k6
USER 12345:12345
WORKDIR /home/k6
ENTRYPOINT ["k6"]
