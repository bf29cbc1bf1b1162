package otlp

import (
	"context"
	"fmt"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// maxReconnect is the longest pause between attempts to connect. It is shorter than the time for which a batch is tried.
const maxReconnect = 3 * time.Second

// grpcSender sends batches by OTLP/gRPC.
type grpcSender struct {
	Endpoint
	target string
	conn   *grpc.ClientConn
}

// newGRPCSender returns a sender to a host and port. It connects when it first sends.
func (e Endpoint) newGRPCSender(scheme, address string) (*grpcSender, error) {
	creds := insecure.NewCredentials()
	if scheme == schemeGRPCS {
		config, err := e.tls()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(config)
	}
	connect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: postTimeout}
	connect.Backoff.MaxDelay = maxReconnect
	call := []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxAnswer)}
	if e.Gzip {
		call = append(call, grpc.UseCompressor(gzip.Name))
	}
	conn, err := grpc.NewClient("dns:///"+address, grpc.WithTransportCredentials(creds), grpc.WithConnectParams(connect),
		grpc.WithUserAgent("proa"), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(call...))
	if err != nil {
		return nil, fmt.Errorf("the OTLP endpoint: %w", err)
	}
	return &grpcSender{e, scheme + "://" + address, conn}, nil
}

func (s *grpcSender) close() { _ = s.conn.Close() } // it is closed once, and cannot fail then

// send sends a batch once.
func (s *grpcSender) send(ctx context.Context, r *exportRequest) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	secret, err := s.headers()
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(secret))
	answer, err := collector.NewTraceServiceClient(s.conn).Export(ctx, r.message())
	if err != nil {
		st := grpcstatus.Convert(err)
		return &refusedError{url: s.target, status: st.Code().String(), text: secret.readable(st.Message()),
			temporary: isTemporaryCode(st.Code())}
	}
	if p := answer.GetPartialSuccess(); p.GetRejectedSpans() > 0 {
		return &partialError{spans: p.GetRejectedSpans(), text: secret.readable(p.GetErrorMessage())}
	}
	return nil
}

// isTemporaryCode reports whether OTLP wants a batch to be sent again later that was answered with a code of gRPC.
func isTemporaryCode(c codes.Code) bool {
	switch c {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss,
		codes.ResourceExhausted:
		return true
	}
	return false
}

// message returns a request as the message of protobuf.
func (r *exportRequest) message() *collector.ExportTraceServiceRequest {
	out := &collector.ExportTraceServiceRequest{}
	for _, rs := range r.ResourceSpans {
		to := &tracepb.ResourceSpans{Resource: &resourcepb.Resource{Attributes: attributeMessages(rs.Resource.Attributes)}}
		for _, ss := range rs.ScopeSpans {
			spans := make([]*tracepb.Span, 0, len(ss.Spans))
			for i := range ss.Spans {
				spans = append(spans, ss.Spans[i].message())
			}
			to.ScopeSpans = append(to.ScopeSpans,
				&tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: ss.Scope.Name}, Spans: spans})
		}
		out.ResourceSpans = append(out.ResourceSpans, to)
	}
	return out
}

func (s *span) message() *tracepb.Span {
	out := &tracepb.Span{
		TraceId: s.TraceID[:], SpanId: s.SpanID[:], Flags: s.Flags, Name: s.Name, Kind: tracepb.Span_SpanKind(s.Kind),
		StartTimeUnixNano: uint64(s.Start), EndTimeUnixNano: uint64(s.End), Attributes: attributeMessages(s.Attributes),
	}
	if s.Parent != nil {
		out.ParentSpanId = s.Parent[:]
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, &tracepb.Span_Event{TimeUnixNano: uint64(e.Time), Name: e.Name})
	}
	for i := range s.Links {
		l := &s.Links[i]
		out.Links = append(out.Links, &tracepb.Span_Link{TraceId: l.TraceID[:], SpanId: l.SpanID[:], Flags: l.Flags})
	}
	if s.Status != nil {
		out.Status = &tracepb.Status{Code: tracepb.Status_StatusCode(s.Status.Code), Message: s.Status.Message}
	}
	return out
}

func attributeMessages(list []attribute) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(list))
	for _, a := range list {
		v := &commonpb.AnyValue{}
		switch {
		case a.Value.Text != nil:
			v.Value = &commonpb.AnyValue_StringValue{StringValue: *a.Value.Text}
		case a.Value.Number != nil:
			v.Value = &commonpb.AnyValue_IntValue{IntValue: int64(*a.Value.Number)}
		case a.Value.Bool != nil:
			v.Value = &commonpb.AnyValue_BoolValue{BoolValue: *a.Value.Bool}
		}
		out = append(out, &commonpb.KeyValue{Key: a.Key, Value: v})
	}
	return out
}
