package metricscollector

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const defaultNamespace = "keda"

// OtelMetrics is what --enable-opentelemetry-metrics, off by default, would fill.
type OtelMetrics struct{ MetricsCollector }

var meterProvider metric.MeterProvider

func NewOtelMetrics(bool) *OtelMetrics { return nil }

func (*OtelMetrics) grpcClientAttributesFromContext(context.Context) []attribute.KeyValue { return nil }
func (*OtelMetrics) RecordGRPCClientCall(...any)                                          {}
func (*OtelMetrics) RecordGRPCClientStreamMessage(...any)                                 {}
