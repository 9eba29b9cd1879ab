# docker build -t zbus . && docker run -p 15555:15555 -v zbus:/data zbus
# How to run it for real: docs/howto/production.md.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE pyspark_zbus.py ./
COPY zbus ./zbus
RUN python -m venv /opt/zbus && /opt/zbus/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home zbus && install -d -o zbus -m 0700 /data
COPY --from=build /opt/zbus /opt/zbus
COPY packaging/healthcheck.py /opt/zbus/
ENV PATH=/opt/zbus/bin:$PATH PYTHONUNBUFFERED=1 ZBUS_DATA_DIR=/data ZBUS_HOST=0.0.0.0
USER zbus
VOLUME /data
EXPOSE 15555
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/opt/zbus/healthcheck.py"]
# Without tokens, whoever reaches the port may do everything: name a file of tokens, or say
# --insecure, as here, on a network that is yours alone.
ENTRYPOINT ["zbus"]
CMD ["serve", "--insecure"]
