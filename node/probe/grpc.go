package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// health probes a service by the health protocol of gRPC. Every error is a failure of the container.
func health(ctx context.Context, a *corev1.GRPCAction, ip string, timeout time.Duration) outcome {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	addr := net.JoinHostPort(ip, strconv.Itoa(int(a.Port)))
	trust := insecure.NewCredentials()
	if a.Mode != nil && *a.Mode == corev1.GRPCProbeModeTLS {
		trust = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: a probe checks availability, not identity
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(trust), grpc.WithUserAgent("kube-probe/"+version),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return failed("error: failed to connect service at %q: %+v", addr, err)
	}
	defer conn.Close()
	// Connect first, to distinguish a failed connection from a missing answer.
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return failed("timeout: failed to connect service %q within %v: %+v", addr, timeout, ctx.Err())
		}
		if conn.GetState() == connectivity.Idle {
			conn.Connect()
		}
	}
	var service string
	if a.Service != nil {
		service = *a.Service
	}
	answer, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		return outcome{failure, healthError(err, timeout)}
	}
	if answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return failed("service unhealthy (responded with %q)", answer.GetStatus().String())
	}
	return outcome{success, "service healthy"}
}

func healthError(err error, timeout time.Duration) string {
	switch s, _ := status.FromError(err); s.Code() {
	case codes.Unimplemented:
		return "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return fmt.Sprintf("error: health rpc probe failed: %+v", err)
}
