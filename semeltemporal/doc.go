// Package semeltemporal runs the sagas of package saga on Temporal, for those who have outgrown the embedded engine. A
// saga is a workflow there, and each call of a step is an activity. Its steps have the same keys as in the embedded
// engine, so that the services which they call recognise a repetition from either.
//
//	err := semeltemporal.Register(worker, secret, order)                              // in the workers
//	orders, err := semeltemporal.New(client, "orders", order, semeltemporal.Options{}) // wherever sagas are started
//	status, err := orders.Start(ctx, "order-17", Order{Total: 4200})
package semeltemporal
