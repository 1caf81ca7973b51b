package main

import (
	"net"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/semelecho"
)

var onEcho = service{
	scope: semelecho.Scope(func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "account") }),
	serve: func(l net.Listener, guard *semel.Guard, ledger *ledger) error {
		e := echo.New()
		e.Use(middleware.Recover(), func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				c.Set("account", c.Request().Header.Get("X-Account"))
				return next(c)
			}
		})
		e.POST("/payments", func(c *echo.Context) error {
			var p payment
			if err := c.Bind(&p); err != nil {
				return err
			}
			ch, err := ledger.charge(p)
			if err != nil {
				return echo.NewHTTPError(http.StatusUnprocessableEntity, err.Error())
			}
			c.Response().Header().Set("Location", "/payments/"+ch.ID)
			return c.JSON(http.StatusCreated, ch)
		}, semelecho.Middleware(guard))
		e.GET("/operations", semelecho.Handler(guard.Operations()))
		return serveHTTP(l, e)
	},
}
