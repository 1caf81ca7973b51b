package shop

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A Principal is who asks, as authentication has found out.
type Principal struct {
	Tenant  string // whose data it is
	Subject string // the user
}

type principalKey struct{}

// principal returns who asks. Each call of the API has one.
func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// scope is what keys are unique within: two users may use the same key, for two operations.
func scope(r *http.Request) (string, error) {
	p := principal(r.Context())
	if p.Tenant == "" || p.Subject == "" {
		return "", errors.New("no principal")
	}
	return p.Tenant + "\x00" + p.Subject, nil
}

// Auth finds out who asks. One of its fields is set.
type Auth struct {
	Key ed25519.PublicKey // of those who issue tokens
	// InsecureDev believes the header X-Tenant-ID. It is for trying things out.
	InsecureDev bool
}

// issuer and audience are the claims that a token for the shop has.
const issuer = "shop"

type claims struct {
	Tenant string `json:"tenant"`
	jwt.RegisteredClaims
}

// Token issues a token for a user of a tenant.
func Token(key ed25519.PrivateKey, p Principal, life time.Duration) (string, error) {
	now := time.Now()
	c := claims{p.Tenant, jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{issuer}, Subject: p.Subject, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	}}
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return token, nil
}

// principalOf returns who sends a request, or what is wrong with how it says so.
func (a Auth) principalOf(r *http.Request) (Principal, error) {
	if a.InsecureDev {
		tenant := r.Header.Get("X-Tenant-ID")
		if tenant == "" {
			return Principal{}, errors.New("the header X-Tenant-ID is missing")
		}
		return Principal{Tenant: tenant, Subject: "dev"}, nil
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Principal{}, errors.New("the header Authorization has no bearer token")
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return a.Key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer), jwt.WithAudience(issuer), jwt.WithExpirationRequired())
	switch {
	case err != nil:
		return Principal{}, fmt.Errorf("the token is not valid: %w", err)
	case c.Subject == "" || c.Tenant == "":
		return Principal{}, errors.New("the token has no subject or no tenant")
	}
	return Principal{Tenant: c.Tenant, Subject: c.Subject}, nil
}

// authenticate lets nobody through whom it does not know. It stands above the guards: a repeat has to pass it too.
func (s *Shop) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.o.Auth.principalOf(r)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="shop"`)
			s.writeProblem(w, &Problem{Status: http.StatusUnauthorized, Code: "unauthorized", Detail: err.Error()})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, p)))
	})
}
