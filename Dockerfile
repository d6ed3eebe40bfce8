# Everything `menagerie serve` runs. Build: docker build -t menagerie .  How to run it: docs/container.md.
# BASE is any Debian 12 or newer with python3 and its venv.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/menagerie
ENV PATH=/opt/menagerie/bin:$PATH
COPY requirements.lock ./
# An index of your own, say, without a trace in any layer: --secret id=pip.conf,src=… and id=ca.pem.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem \
    pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && pip uninstall --yes --quiet pip

# hadolint ignore=DL3006
FROM ${BASE}
# Of MariaDB the programs and the one plugin that is loaded: the whole package brings Perl and a service of its own.
# The version of a Debian package is the distribution's to choose: it carries the security fixes.
# A subshell leaves the folder again, and apt-get downloads into the one it is in.
# hadolint ignore=DL3003,DL3008,DL4006
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        bubblewrap mariadb-backup mariadb-server-core redis-server tini tzdata \
    && (cd /tmp && apt-get download mariadb-server) \
    && dpkg-deb --fsys-tarfile /tmp/mariadb-server_*.deb \
        | tar -x -C / ./usr/lib/mysql/plugin/password_reuse_check.so \
    && test -s /usr/lib/mysql/plugin/password_reuse_check.so \
    && rm /tmp/mariadb-server_*.deb \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log \
    && useradd --system --uid 10001 --home-dir /var/lib/menagerie menagerie \
    && install -d -o menagerie -g menagerie /var/lib/menagerie
COPY --from=build /opt/menagerie /opt/menagerie
# The home is closed to engines; what they enter lies beside it in the volume (decision 0016).
# Listens on every address of the container: what is reached of it is what `docker run` publishes.
ENV PATH=/opt/menagerie/bin:$PATH \
    MENAGERIE_HOME=/var/lib/menagerie/home \
    MENAGERIE_HOST=0.0.0.0 \
    MENAGERIE_GATEWAY_LISTEN=0.0.0.0 \
    MENAGERIE_LOG_FORMAT=json
# Runs as root, so that each engine gets a user of its own. With --user 10001 all engines share that one.
VOLUME /var/lib/menagerie
EXPOSE 8080 8443 15432 13306 16379 17017 18443 19440
HEALTHCHECK --interval=30s --timeout=15s --start-period=60s \
    CMD ["menagerie", "wait", "--timeout", "5"]
# Engines outlive a cell that was killed, and then belong to process 1: it has to bury them.
ENTRYPOINT ["tini", "--"]
CMD ["menagerie", "serve"]
