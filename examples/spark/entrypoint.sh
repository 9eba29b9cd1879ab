#!/bin/bash
# What Kubernetes starts: Spark asks an image for `driver ...` or `executor`.
set -eu
readarray -t java_opts < <(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')

case "${1:-}" in
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --deploy-mode client "$@"
  ;;
executor)
  exec java "${java_opts[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec "$@"
  ;;
esac
