package shop

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// crashPoints are the points before and after each effect. N stands for a number.
var crashPoints = strings.Fields(`
	orders.create.taken orders.create.inserted orders.confirm.moved orders.cancel.moved
	payments.prepare.start payments.prepare.begun payments.prepare.authorized payments.prepare.saved payments.prepare.finished
	payments.process.start payments.process.begun payments.process.charged payments.process.saved payments.process.finished
	payments.cancel.start payments.cancel.begun payments.cancel.voided payments.cancel.saved payments.cancel.finished
	payments.refund.start payments.refund.begun payments.refund.refunded payments.refund.saved payments.refund.finished
	intents.put.start intents.put.begun intents.put.authorized intents.put.finished
	intents.confirm.start intents.confirm.begun intents.confirm.charged intents.confirm.saved intents.confirm.finished
	intents.cancel.begun intents.end.voided
	points.add.inserted bulk.begun bulk.chunk.N
	messages.published messages.email.handled messages.email.committed messages.invoice.handled messages.invoice.committed
	saga.pay.start saga.pay.begun saga.pay.charged saga.pay.finished
	saga.unpay.start saga.unpay.begun saga.unpay.refunded saga.unpay.finished
	saga.reserve.start saga.reserve.reserved saga.release.start saga.release.released saga.ship.start saga.ship.shipped
`)

var number = regexp.MustCompile(`\.\d+$`)

// CheckCrashPoint returns an error that names all points, if the shop never comes to the given one.
func CheckCrashPoint(point string) error {
	if slices.Contains(crashPoints, number.ReplaceAllString(point, ".N")) {
		return nil
	}
	return fmt.Errorf("there is no point %q; there are %s", point, strings.Join(crashPoints, ", "))
}

// crash ends the process, if it is to end at that point.
func (s *Shop) crash(point string) {
	if err := CheckCrashPoint(point); err != nil {
		panic(err) // it would not be found in the list
	}
	s.o.Crash(point)
}
