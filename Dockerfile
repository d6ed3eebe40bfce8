# The control plane and, with `serve`, everything else. Build: docker build -t menagerie .
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python -m venv /opt/menagerie
ENV PATH=/opt/menagerie/bin:$PATH
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
# The version of a Debian package is the distribution's to choose: it carries the security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/menagerie menagerie
COPY --from=build /opt/menagerie /opt/menagerie
ENV PATH=/opt/menagerie/bin:$PATH \
    MENAGERIE_HOME=/var/lib/menagerie \
    MENAGERIE_HOST=0.0.0.0 \
    MENAGERIE_LOG_FORMAT=json
USER 10001
VOLUME /var/lib/menagerie
EXPOSE 8080 8443 15432 13306 16379 17017 18443 19440
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import httpx; httpx.get('http://127.0.0.1:8080/healthz').raise_for_status()"]
# The API alone. Run the other parts from the same image: worker, cell, gateway, or serve for all.
CMD ["gunicorn", "--config", "python:menagerie.gunicorn_settings", "menagerie.asgi:app"]
