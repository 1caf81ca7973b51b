package webhook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/outbox/webhook"
)

func TestSignatureIsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	if err := webhook.Sign(h, knownID, time.Unix(knownTime, 999), []byte(knownPayload), knownSecret); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"webhook-id": knownID, "webhook-timestamp": "1614265330", "webhook-signature": knownSignature,
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestEachSecretSigns(t *testing.T) {
	t.Parallel()
	h, other := http.Header{}, webhook.NewSecret()
	if err := webhook.Sign(h, knownID, time.Unix(knownTime, 0), []byte(knownPayload), other, knownSecret); err != nil {
		t.Fatal(err)
	}
	want := signatureOf(other, knownID, "1614265330", knownPayload) + " " + knownSignature
	if got := h.Get("webhook-signature"); got != want {
		t.Errorf("signed %q, want %q", got, want)
	}
}

func TestWhatCannotBeSignedIsAnErrorWithoutTheSecret(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id, secret, why string
	}{
		{"", knownSecret, "no id"},
		{"a.b", knownSecret, "a full stop divides what is signed"},
		{"a b", knownSecret, "a space"},
		{"ä", knownSecret, "not ASCII"},
		{strings.Repeat("a", 256), knownSecret, "too long"},
		{"a", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "no prefix"},
		{"a", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa", "not base64"},
		{"a", "whsec_c2hvcnQtc2VjcmV0", "too short"},
	} {
		h := http.Header{}
		err := webhook.Sign(h, c.id, time.Now(), nil, c.secret)
		if err == nil || len(h) > 0 || strings.Contains(err.Error(), strings.TrimPrefix(c.secret, "whsec_")) {
			t.Errorf("%s: %v, headers %v; want an error alone, without the secret", c.why, err, h)
		}
	}
	if err := webhook.Sign(http.Header{}, "a", time.Now(), nil); err == nil {
		t.Error("signed without a secret")
	}
}

func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewSecret(), webhook.NewSecret()
	if a == b || !strings.HasPrefix(a, "whsec_") {
		t.Errorf("made %q and %q", a, b)
	}
}
