# OMG on the CPU, from its wheel: docker build -t omg . && docker run --rm --shm-size=1g -v "$PWD:/work" omg demo
FROM python:3.11-slim AS wheel
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev git && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /dist

# Without a compiler: the wheel has kernels for x86-64-v2, v3 and v4.
FROM python:3.11-slim
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu -c /constraints.txt torch && \
    pip install --no-cache-dir -c /constraints.txt /dist/*.whl
WORKDIR /work
ENTRYPOINT ["omg"]
CMD ["doctor"]
