package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const connections = 32 // of clients, where a row does not say otherwise

// gatewayOn measures P-11 and P-12 with a kind of store: upstream, bare proxy and gateway are processes of their own,
// on loopback. The gateway has the collector's settings that a user gets.
func gatewayOn(store string) func(context.Context, *meter) ([]row, error) {
	return func(ctx context.Context, m *meter) ([]row, error) { return gateway(ctx, m, store) }
}

func gateway(ctx context.Context, m *meter, store string) ([]row, error) {
	upstream, err := startSelf(ctx, "upstream")
	if err != nil {
		return nil, err
	}
	defer upstream.stop()
	proxy, err := startSelf(ctx, "proxy:http://"+upstream.addr)
	if err != nil {
		return nil, err
	}
	defer proxy.stop()
	gate, err := startGateway(ctx, upstream.addr, store)
	if err != nil {
		return nil, err
	}
	defer gate.stop()

	fresh := func(i int64) string { return fmt.Sprintf("first-%d-%d", time.Now().UnixNano(), i) }
	// The cap on attempts with one key stands, so repeats go round a set of keys that were all used once.
	const known = 20_000
	repeat := func(i int64) string { return fmt.Sprintf("repeat-%d", i%known) }

	loads := map[string]*load{}
	for name, l := range map[string]struct {
		addr  string
		conns int
		key   func(int64) string
	}{
		"proxy": {proxy.addr, connections, fresh}, "first": {gate.addr, connections, fresh}, "replay": {gate.addr, connections, repeat},
		"many proxy": {proxy.addr, 4 * connections, fresh}, "many first": {gate.addr, 4 * connections, fresh},
	} {
		loads[name] = newLoad(l.addr, l.conns, l.key)
		defer loads[name].close()
	}
	if err := fill(loads["replay"], known); err != nil {
		return nil, err
	}

	var proxies, firsts, replays, manyProxies, manyFirsts, firstRatio, replayRatio, manyRatio []float64
	for range m.rounds {
		got := map[string]float64{}
		for _, name := range []string{"proxy", "first", "replay", "many proxy", "many first"} {
			if got[name], err = loads[name].throughput(3 * m.span); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		proxies, firsts, replays = append(proxies, got["proxy"]), append(firsts, got["first"]), append(replays, got["replay"])
		firstRatio = append(firstRatio, got["first"]/got["proxy"])
		replayRatio = append(replayRatio, got["replay"]/got["proxy"])
		manyProxies, manyFirsts = append(manyProxies, got["many proxy"]), append(manyFirsts, got["many first"])
		manyRatio = append(manyRatio, got["many first"]/got["many proxy"])
	}

	m.settled(proxies)

	rate := 0.3 * median(firsts)
	var add50, add99, p50s, p99s, f50s, f99s []float64
	for range m.rounds {
		bare, err := loads["proxy"].latencies(rate, 3*m.span)
		if err != nil {
			return nil, err
		}
		ours, err := loads["first"].latencies(rate, 3*m.span)
		if err != nil {
			return nil, err
		}
		p50s, p99s = append(p50s, float64(quantile(ours, .5))), append(p99s, float64(quantile(ours, .99)))
		f50s, f99s = append(f50s, float64(quantile(bare, .5))), append(f99s, float64(quantile(bare, .99)))
		add50 = append(add50, float64(quantile(ours, .5)-quantile(bare, .5)))
		add99 = append(add99, float64(quantile(ours, .99)-quantile(bare, .99)))
	}
	perSecond := func(v float64) string { return fmt.Sprintf("%.0f/s", v) }
	ms := func(v float64) string { return fmt.Sprintf("%.2f ms", v/1e6) }
	added := func(v float64) string { return fmt.Sprintf("%+.2f ms", v/1e6) }
	kind, _, _ := strings.Cut(store, ":")
	reach := gatewayReach[kind]
	return []row{
		{"P-11", fmt.Sprintf("gateway on %s, first execution, throughput with %d connections", kind, connections), perSecond(median(firsts)), perSecond(median(proxies)), times(median(firstRatio)), reach.few},
		{"P-11", fmt.Sprintf("the same with %d connections", 4*connections), perSecond(median(manyFirsts)), perSecond(median(manyProxies)), times(median(manyRatio)), reach.many},
		{"P-11", fmt.Sprintf("its p50 at 30 %% load (%.0f/s)", rate), ms(median(p50s)), ms(median(f50s)), added(median(add50)), reach.p50},
		{"P-11", "its p99 at 30 % load", ms(median(p99s)), ms(median(f99s)), added(median(add99)), reach.p99},
		{"P-12", "gateway on " + kind + ", replay, throughput", perSecond(median(replays)), perSecond(median(proxies)), times(median(replayRatio)), "≥ 1.7×"},
	}, nil
}

// gatewayReach is what P-11 asks of the gateway, by its store.
var gatewayReach = map[string]struct{ few, many, p50, p99 string }{
	"memory": {"≥ 0.75×", "≥ 0.75×", "≤ +0.10 ms", "≤ +1 ms"},
	"sqlite": {"≥ 0.45×", "≥ 0.7×", "≤ +1 ms", "≤ +4 ms"},
}

// fill uses every key once.
func fill(l *load, keys int) error {
	if err := l.open(); err != nil {
		return err
	}
	return l.each(func(i int) error {
		var buf []byte
		var err error
		for range keys/len(l.conns) + 1 {
			if buf, err = l.one(i, buf); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
		return nil
	})
}
